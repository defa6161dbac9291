// The error that everything here throws.

// 'trap': the WebAssembly module failed inside; its engine is closed. 'context': the context is full.
// 'length': an answer was cut before the requested form was complete. 'aborted': the caller's signal.
// 'network' and 'quota' come from downloads and their cache. 'busy': another tab or program uses the
// stored file. 'worker': the worker could not start, or died.
export type ErrorCode =
  | 'aborted' | 'argument' | 'busy' | 'closed' | 'context' | 'device' | 'format' | 'io' | 'length' | 'memory'
  | 'network' | 'quota' | 'trap' | 'unsupported' | 'worker';

export class TernError extends Error {
  // The name of aborted calls, as with fetch and other web APIs.
  override readonly name: 'TernError' | 'AbortError';
  constructor(readonly code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = code === 'aborted' ? 'AbortError' : 'TernError';
  }
}
