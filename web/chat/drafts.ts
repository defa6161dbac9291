// What is typed and not sent yet, for each conversation: it survives a reload, and a look at another conversation.
const KEY = 'tern-chat-draft:';

/** id: of the conversation; '' for one that has not begun. */
export function readDraft(id: string): string {
  try {
    return localStorage.getItem(KEY + id) ?? '';
  } catch {
    return ''; // storage is switched off
  }
}

export function writeDraft(id: string, text: string): void {
  try {
    if (text) localStorage.setItem(KEY + id, text);
    else localStorage.removeItem(KEY + id);
  } catch {
    /* storage is switched off or full: it stays in the field */
  }
}
