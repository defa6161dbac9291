// The list of conversations: open, rename, export, delete.
import { byId, h, icon, iconButton, type IconName } from '../shared/dom.ts';
import { formatDay } from '../shared/format.ts';
import type { Summary } from './history.ts';

export interface SidebarActions {
  open(id: string): void;
  rename(id: string, title: string): void;
  remove(talk: Summary): void;
  export(talk: Summary, as: 'markdown' | 'json'): void;
  exportAll(): void;
  importFile(): void;
}

export class Sidebar {
  private readonly list = byId('talks');
  private readonly veil = byId('veil');
  private talks: readonly Summary[] = [];
  private drawn = '';
  private current = '';
  private renaming = '';

  constructor(private readonly actions: SidebarActions) {
    byId('sidebar-actions').append(
      iconButton('more', 'Export and import', (event) =>
        this.menu(event, [
          ['download', 'Export all', () => actions.exportAll()],
          ['file', 'Import a file…', () => actions.importFile()],
        ]),
      ),
    );
    this.veil.addEventListener('click', () => this.close());
    byId('sidebar').addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && this.isOpen) this.close();
    });
  }

  get isOpen(): boolean {
    return document.body.classList.contains('sidebar-open');
  }
  /** On phones the list lies over the page. */
  open(): void {
    document.body.classList.add('sidebar-open');
    this.veil.hidden = false;
    byId('sidebar').querySelector<HTMLElement>('button')?.focus();
  }
  close(): void {
    document.body.classList.remove('sidebar-open');
    this.veil.hidden = true;
  }

  show(talks: readonly Summary[], current: string): void {
    this.talks = talks;
    this.current = current;
    const now = JSON.stringify([current, ...talks.map(({ id, title, updated }) => [id, title, formatDay(updated)])]);
    if (this.renaming || now === this.drawn) return;
    this.drawn = now;
    this.draw();
  }

  private draw(): void {
    const parts: HTMLElement[] = [];
    let day = '';
    for (const talk of this.talks) {
      const heading = formatDay(talk.updated);
      if (heading !== day) parts.push(h('h3', null, (day = heading)), h('ul', null));
      parts.at(-1)!.append(this.row(talk));
    }
    if (parts.length === 0) parts.push(h('p', { class: 'empty' }, 'Your conversations will be listed here.'));
    // The list is drawn anew while somebody uses it: the focus stays where it was.
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.talk;
    const kind = document.activeElement?.className;
    this.list.replaceChildren(...parts);
    if (focused)
      this.list
        .querySelector<HTMLElement>(`[data-talk="${CSS.escape(focused)}"].${kind?.split(' ')[0] ?? 'open'}`)
        ?.focus();
  }

  private row(talk: Summary): HTMLElement {
    if (talk.id === this.renaming) return this.renameRow(talk);
    const { title } = talk;
    const more = iconButton(
      'more',
      `More for “${title}”`,
      (event) =>
        this.menu(event, [
          [
            'edit',
            'Rename',
            () => {
              this.renaming = talk.id;
              this.draw();
            },
          ],
          ['download', 'Export as Markdown', () => this.actions.export(talk, 'markdown')],
          ['download', 'Export as JSON', () => this.actions.export(talk, 'json')],
          ['trash', 'Delete', () => this.actions.remove(talk)],
        ]),
      'small more',
    );
    more.dataset.talk = talk.id;
    return h(
      'li',
      { class: talk.id === this.current ? 'current' : '' },
      h(
        'button',
        {
          type: 'button',
          class: 'open',
          title,
          'data-talk': talk.id,
          'aria-current': talk.id === this.current ? 'true' : undefined,
          onclick: () => {
            this.close();
            this.actions.open(talk.id);
          },
        },
        title,
      ),
      more,
    );
  }

  private renameRow(talk: Summary): HTMLElement {
    const input = h('input', {
      class: 'input',
      value: talk.title,
      maxlength: 120,
      'aria-label': 'Name of the conversation',
    });
    const done = (keep: boolean) => {
      if (this.renaming !== talk.id) return;
      this.renaming = '';
      this.drawn = '';
      if (keep) this.actions.rename(talk.id, input.value.trim());
      this.draw();
      this.list.querySelector<HTMLElement>(`.open[data-talk="${CSS.escape(talk.id)}"]`)?.focus();
    };
    input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.isComposing) done(true);
      if (event.key === 'Escape') {
        event.stopPropagation();
        done(false);
      }
    });
    input.addEventListener('blur', () => done(true));
    queueMicrotask(() => {
      input.focus();
      input.select();
    });
    return h('li', null, input);
  }

  // A small menu beside a button; closed by a choice, Escape, or a click elsewhere.
  private menu(event: Event, entries: [IconName, string, () => void][]): void {
    const button = event.currentTarget as HTMLElement;
    const close = () => {
      menu.remove();
      removeEventListener('pointerdown', outside, true);
      removeEventListener('resize', close);
    };
    const outside = (pressed: Event) => {
      if (!menu.contains(pressed.target as Node)) close();
    };
    const items = entries.map(([name, label, run]) =>
      h(
        'button',
        {
          type: 'button',
          role: 'menuitem',
          class: name === 'trash' ? 'danger' : '',
          onclick: () => {
            close();
            button.focus();
            run();
          },
        },
        icon(name),
        label,
      ),
    );
    const menu = h(
      'div',
      {
        class: 'menu',
        role: 'menu',
        onkeydown: (pressed: KeyboardEvent) => {
          const at = items.indexOf(document.activeElement as HTMLButtonElement);
          const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[pressed.key];
          if (to !== undefined) {
            pressed.preventDefault();
            items[(to + items.length) % items.length]!.focus();
          }
          if (pressed.key === 'Escape' || pressed.key === 'Tab') {
            pressed.preventDefault();
            pressed.stopPropagation();
            close();
            button.focus();
          }
        },
      },
      ...items,
    );
    document.body.append(menu);
    const place = button.getBoundingClientRect();
    menu.style.left = `${Math.max(8, Math.min(place.left, innerWidth - menu.offsetWidth - 8))}px`;
    menu.style.top = `${Math.max(8, Math.min(place.bottom + 4, innerHeight - menu.offsetHeight - 8))}px`;
    items[0]!.focus();
    addEventListener('pointerdown', outside, true);
    addEventListener('resize', close);
  }
}
