// Keeps what is written: stores conversations one after another, settles what another tab has changed meanwhile so
// that nothing that was written is lost, and knows whether an answer is still being written somewhere.
import { Conflict, type Store } from './store.ts';
import { type Conversation, type Summary, holds, isEmpty, newId, summaryOf, titleOf } from './history.ts';

export interface KeeperEvents {
  /** The list of conversations changed. */
  listed(): void;
  /** A conversation has other content or another id now. */
  changed(talk: Conversation): void;
  /** Another tab deleted it. */
  gone(id: string): void;
  tell(text: string): void;
  /** Whether its content must not be replaced: an answer grows in it, or somebody edits it. */
  isBusy(talk: Conversation): boolean;
}

const writingLock = (id: string) => `tern-chat-writing-${id}`;

export class Keeper {
  private readonly known = new Map<string, Summary>();
  private readonly unsaved = new Set<Conversation>();
  private readonly deleted = new Set<string>();
  private readonly open = new Set<Conversation>(); // those that the page shows or writes
  private queue: Promise<void> = Promise.resolve();
  private timer = 0;

  constructor(
    private readonly store: Store,
    private readonly events: KeeperEvents,
  ) {
    store.onChange(({ id, gone }) => void (gone ? this.otherDeleted(id) : this.otherKept(id)));
  }

  get list(): Summary[] {
    return [...this.known.values()].sort((a, b) => b.updated - a.updated);
  }

  async read(): Promise<void> {
    for (const one of await this.store.list()) this.known.set(one.id, one);
    this.events.listed();
  }

  /** Those that the page shows or writes from now on. */
  hold(...talks: Conversation[]): void {
    this.open.clear();
    for (const talk of talks) this.open.add(talk);
  }

  /** In a moment: many small changes are one. */
  keepSoon(talk: Conversation): void {
    this.unsaved.add(talk);
    this.timer ||= window.setTimeout(() => this.keepAll(), 800);
  }

  keepAll(): void {
    clearTimeout(this.timer);
    this.timer = 0;
    for (const talk of this.unsaved) void this.keep(talk);
  }

  keep(talk: Conversation): Promise<void> {
    if (isEmpty(talk) || this.deleted.has(talk.id)) {
      this.unsaved.delete(talk);
      return Promise.resolve();
    }
    this.unsaved.add(talk);
    return (this.queue = this.queue.then(() => this.keepNow(talk)));
  }

  private async keepNow(talk: Conversation): Promise<void> {
    if (this.deleted.has(talk.id)) return;
    talk.title = titleOf(talk);
    this.unsaved.delete(talk);
    try {
      await this.store.put(talk);
      this.note(talk);
    } catch (error) {
      this.unsaved.add(talk);
      if (error instanceof Conflict) return this.settle(talk, error.stored);
      this.events.tell(`The conversation could not be kept: ${(error as Error).message}`);
    }
  }

  private note(talk: Conversation): void {
    this.known.set(talk.id, summaryOf(talk));
    this.events.listed();
  }

  /** The page ends: what is not stored yet is stored now, without a comparison. */
  end(): void {
    for (const talk of this.unsaved) if (!isEmpty(talk) && !this.deleted.has(talk.id)) this.store.putLast(talk);
    this.unsaved.clear();
  }

  async delete(id: string): Promise<void> {
    this.deleted.add(id);
    this.known.delete(id);
    await this.store.delete(id);
    this.events.listed();
  }

  // ---- Other tabs ------------------------------------------------------------------------------------

  // Of two copies that say different things both are kept.
  private async settle(talk: Conversation, stored: Conversation | undefined): Promise<void> {
    if (stored && holds(talk, stored)) {
      talk.revision = stored.revision;
      if (stored.named && !talk.named) Object.assign(talk, { named: true, title: stored.title });
      return this.keepNow(talk);
    }
    if (stored && holds(stored, talk) && !this.events.isBusy(talk)) return this.adopt(talk, stored);
    Object.assign(talk, { id: newId(), revision: 0 });
    this.events.tell(
      `The conversation was ${stored ? 'changed' : 'deleted'} in another tab; what is written here is kept as one of its own.`,
    );
    await this.keepNow(talk);
    this.events.changed(talk);
  }

  private adopt(talk: Conversation, stored: Conversation): void {
    this.unsaved.delete(talk);
    Object.assign(talk, stored);
    this.note(talk);
    this.events.changed(talk);
  }

  private async otherKept(id: string): Promise<void> {
    const stored = await this.store.get(id);
    if (!stored) return;
    this.note(stored);
    for (const talk of this.open)
      if (talk.id === id && talk.revision !== stored.revision && !this.unsaved.has(talk) && !this.events.isBusy(talk))
        this.adopt(talk, stored);
  }

  private otherDeleted(id: string): void {
    this.known.delete(id);
    this.events.listed();
    // What somebody has just typed here is kept; that an answer grows is no reason.
    for (const talk of this.open) if (talk.id === id && this.unsaved.has(talk) && !talk.writing) return;
    this.deleted.add(id);
    this.events.gone(id);
  }

  /** A page that was in the background for long, perhaps without hearing of changes. */
  async lookAgain(): Promise<void> {
    for (const talk of this.open) if (!isEmpty(talk)) await this.otherKept(talk.id);
  }

  // ---- Answers being written -------------------------------------------------------------------------

  /** Tells other tabs, and the next page if this one ends, that an answer is being written; ends with the result. */
  async whileWriting<T>(talk: Conversation, write: () => Promise<T>): Promise<T> {
    let done: () => void = () => {};
    const locks = navigator.locks as LockManager | undefined;
    void locks?.request(writingLock(talk.id), () => new Promise<void>((resolve) => (done = resolve)));
    talk.writing = true;
    try {
      return await write();
    } finally {
      talk.writing = false;
      void this.keep(talk).finally(() => done());
    }
  }

  /** Whether another tab writes it: if so, returns when it has ended. */
  private async otherWriter(id: string): Promise<boolean> {
    const locks = navigator.locks as LockManager | undefined;
    const held = (await locks?.query())?.held ?? [];
    if (!held.some(({ name }) => name === writingLock(id))) return false;
    await locks!.request(writingLock(id), () => undefined);
    return true;
  }

  /** An answer that was being written when it was stored: by another tab, or by a page that ended in it. */
  async lookForWriter(talk: Conversation): Promise<void> {
    const { id } = talk;
    if (await this.otherWriter(id)) await this.otherKept(id);
    if (!talk.writing || talk.id !== id || !this.open.has(talk) || this.events.isBusy(talk)) return;
    talk.writing = false;
    const last = talk.messages.at(-1);
    if (last?.role === 'assistant') last.end = 'cut';
    this.events.changed(talk);
    if (talk.kind === 'text') this.events.tell('The page was closed while the text was continued: its end is missing.');
    void this.keep(talk);
  }
}
