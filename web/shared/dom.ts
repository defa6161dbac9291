// Elements without HTML: h('button', { class: 'button', onclick: go }, 'Go'). Text is always text, and
// no attribute is set whose name begins with "on" (a strict policy would refuse it, too).

type Child = Node | string | null | undefined | false;
type Properties = Record<string, unknown>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties | null,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === 'value' || name === 'checked' || name === 'open')
      (element as unknown as Properties)[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(
    ...children.filter(
      (child): child is Node | string => child !== null && child !== undefined && child !== false,
    ),
  );
  return element;
}

/** The element with this id; the page's own, so it is there. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element as T;
}

// Drawn on a grid of 24 by 24, as strokes.
const ICONS = {
  menu: 'M4 7h16M4 12h16M4 17h10',
  plus: 'M12 5v14M5 12h14',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M8 8h8v8H8z',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  retry: 'M4 12a8 8 0 1 0 2.5-5.8M4 4v4h4',
  edit: 'M5 19l1-4L16 5l3 3L9 18zM14 7l3 3',
  trash: 'M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12M10 11v5M14 11v5',
  download: 'M12 4v11M7 10l5 5 5-5M5 20h14',
  settings: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  file: 'M7 4h7l4 4v12H7zM14 4v4h4',
  share: 'M12 15V4M8 8l4-4 4 4M6 12v8h12v-8',
  chip: 'M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4',
  chevron: 'M7 10l5 5 5-5',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  undo: 'M9 7L4 12l5 5M4 12h10a5 5 0 0 1 0 10h-2',
  spark: 'M12 4l1.8 5.2L19 11l-5.2 1.8L12 18l-1.8-5.2L5 11l5.2-1.8z',
  down: 'M12 5v14M6 13l6 6 6-6',
  wave: 'M3 12h4l2-6 4 12 2-6h6',
  microphone: 'M12 4a3 3 0 0 1 3 3v4a3 3 0 0 1-6 0V7a3 3 0 0 1 3-3zM6 11a6 6 0 0 0 12 0M12 17v3M9 20h6',
  clip: 'M19 11l-7.5 7.5a4.5 4.5 0 0 1-6.4-6.4L13 4.2a3 3 0 0 1 4.3 4.2l-7.6 7.7a1.5 1.5 0 0 1-2.2-2.1L14 7.5',
} as const;
export type IconName = keyof typeof ICONS;

export function icon(name: IconName): SVGSVGElement {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(space, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/** A round button with an icon; `label` is what is read aloud and shown on hover. */
export function iconButton(
  name: IconName,
  label: string,
  onclick: (event: Event) => void,
  className = '',
): HTMLButtonElement {
  return h(
    'button',
    { type: 'button', class: `icon-button ${className}`, 'aria-label': label, title: label, onclick },
    icon(name),
  );
}

/** Puts text on the clipboard; shows on the button that it is there. */
export async function copyText(text: string, button?: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyBySelection(text)) return false;
  }
  const old = button?.querySelector('svg');
  if (button && old) {
    const done = icon('check');
    old.replaceWith(done);
    setTimeout(() => done.replaceWith(old), 1500);
  }
  return true;
}

// Pages without https, in which there is no clipboard object.
function copyBySelection(text: string): boolean {
  const area = h('textarea', { class: 'visually-hidden', value: text });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}

/** Offers text as a file. */
export function saveFile(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

let toasts: HTMLElement | null = null;
/** A short message at the bottom; with an action it stays until it is used or closed. */
export function toast(text: string, action?: { label: string; run: () => void }): void {
  if (!toasts)
    document.body.append((toasts = h('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' })));
  const remove = () => element.remove();
  const element = h(
    'div',
    { class: 'toast' },
    h('span', { class: 'grow' }, text),
    action &&
      h(
        'button',
        {
          type: 'button',
          onclick: () => {
            remove();
            action.run();
          },
        },
        action.label,
      ),
    action && h('button', { type: 'button', 'aria-label': 'Close', onclick: remove }, '×'),
  );
  toasts.append(element);
  // A dialog is shown above everything else, so the message goes into it.
  const dialog = document.querySelector('dialog[open]');
  (dialog ?? document.body).append(toasts);
  if (!action) setTimeout(remove, 6000);
}
