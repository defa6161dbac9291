// Calls that may wait in the middle, suspended where the browser supports it (JSPI): wraps an export and the import that
// waits. Elsewhere the export returns when all is done, and the import is `instead`, which does not wait.
type Numbers = (...args: number[]) => number;
type Waiting = (...args: number[]) => Promise<number>;
interface Jspi {
  promising?: (f: unknown) => Waiting;
  Suspending?: new (f: Waiting) => WebAssembly.ImportValue;
}
export function suspendable(f: (...args: number[]) => number | Promise<number>): (...args: number[]) => number | Promise<number> {
  const { promising, Suspending } = WebAssembly as unknown as Jspi;
  return promising && Suspending ? promising(f) : f;
}
export function suspending(wait: Waiting, instead: Numbers): WebAssembly.ImportValue {
  const { promising, Suspending } = WebAssembly as unknown as Jspi;
  return promising && Suspending ? new Suspending(wait) : instead;
}
