// What everything here throws.

// 'trap': the WebAssembly module failed inside; its engine is closed. 'context': the context is full.
// 'aborted': the caller's signal. 'network' and 'quota' come from downloads and their cache.
export type ErrorCode =
  | 'aborted' | 'argument' | 'closed' | 'context' | 'device' | 'format' | 'io' | 'memory' | 'network'
  | 'quota' | 'trap' | 'unsupported';

export class TernError extends Error {
  override readonly name = 'TernError';
  constructor(readonly code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}
