// Asks for the server's key.
import { openDialog } from '../chat/dialogs.ts';
import { h } from '../shared/dom.ts';

/** The key that was typed; null: none. Several requests that want one at once share a dialog. */
let asking: Promise<string | null> | null = null;
export function askForKey(): Promise<string | null> {
  asking ??= new Promise<string | null>((resolve) => {
    let key: string | null = null;
    // Shown as a password, but none to the browser, which would offer to keep it.
    const input = h('input', {
      id: 'key',
      class: 'input secret',
      type: 'text',
      autocomplete: 'off',
      autocapitalize: 'off',
      spellcheck: 'false',
      required: true,
    });
    const form = h(
      'form',
      {
        onsubmit: (event: Event) => {
          event.preventDefault();
          key = input.value.trim() || null;
          dialog.close();
        },
      },
      h(
        'div',
        { class: 'field' },
        h('label', { for: 'key' }, 'API key'),
        input,
        h('span', { class: 'hint' }, 'One of those that the server was started with. This browser keeps it.'),
      ),
      h('div', { class: 'row end' }, h('button', { type: 'submit', class: 'button primary' }, 'Use it')),
    );
    const dialog = openDialog('This server asks for a key', [form]);
    dialog.addEventListener('close', () => {
      asking = null;
      resolve(key);
    });
    input.focus();
  });
  return asking;
}
