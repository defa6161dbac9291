// A queue that is read with for await. Leaving the loop early notifies the writer.
export class Queue<T> implements AsyncIterableIterator<T> {
  #items: T[] = [];
  #end: { error?: unknown } | undefined;
  #waiting: ((next: void) => void)[] = [];

  constructor(private onLeave: () => void) {}

  push(item: T): void {
    if (!this.#end) this.#items.push(item);
    this.#wake();
  }
  finish(): void {
    this.#end ??= {};
    this.#wake();
  }
  fail(error: unknown): void {
    this.#end ??= { error };
    this.#wake();
  }
  #wake(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  async next(): Promise<IteratorResult<T>> {
    while (this.#items.length === 0) {
      if (this.#end && 'error' in this.#end) {
        const { error } = this.#end;
        this.#end = {};
        throw error;
      }
      if (this.#end) return { done: true, value: undefined };
      await new Promise<void>(resolve => this.#waiting.push(resolve));
    }
    return { done: false, value: this.#items.shift()! };
  }
  async return(): Promise<IteratorResult<T>> {
    this.#items = [];
    this.finish();
    this.onLeave();
    return { done: true, value: undefined };
  }
  [Symbol.asyncIterator](): this {
    return this;
  }
}
