// A dialog's frame: a title, a button that closes it, a body. The element is made when it is opened and
// removed when it is closed; the focus goes back to where it was.
import { h, iconButton } from '../shared/dom.ts';

export function openDialog(title: string, body: (Node | string)[], footer: Node[] = []): HTMLDialogElement {
  const dialog = h(
    'dialog',
    { 'aria-label': title },
    h(
      'header',
      null,
      h('h2', { tabindex: -1, autofocus: true }, title),
      iconButton('close', 'Close', () => dialog.close()),
    ),
    h('div', { class: 'body' }, ...body),
    footer.length > 0 && h('footer', null, ...footer),
  );
  dialog.addEventListener('close', () => {
    dialog.remove();
    // The focus is back, but where text goes may still be in a field of the dialog, and so nowhere.
    const field = document.activeElement;
    if (!(field instanceof HTMLTextAreaElement || field instanceof HTMLInputElement)) return;
    field.blur();
    field.focus({ preventScroll: true });
  });
  // A click on the dialog's own box is one beside its content.
  let pressed: EventTarget | null = null;
  dialog.addEventListener('pointerdown', (event) => (pressed = event.target));
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog && pressed === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Asks before something is lost; true if it is wanted. */
export function confirmDialog(title: string, text: string, action: string): Promise<boolean> {
  return new Promise((resolve) => {
    let wanted = false;
    const close = () => dialog.close();
    const go = h(
      'button',
      {
        type: 'button',
        class: 'button danger',
        onclick: () => {
          wanted = true;
          close();
        },
      },
      action,
    );
    const dialog = openDialog(
      title,
      [h('p', null, text)],
      [h('button', { type: 'button', class: 'button', onclick: close }, 'Cancel'), go],
    );
    dialog.addEventListener('close', () => resolve(wanted));
    go.focus();
  });
}
