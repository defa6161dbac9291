// Errors that survive a worker's boundary, which only plain data can cross.
import { TernError, type ErrorCode } from './engine/error.js';

export { TernError, type ErrorCode };

export interface PlainError { code: ErrorCode; message: string; stack?: string }

export function aborted(signal?: AbortSignal): TernError {
  const reason: unknown = signal?.reason;
  if (reason instanceof TernError) return reason;
  const why = reason instanceof Error && reason.name !== 'AbortError' ? `: ${reason.message}` : '';
  return new TernError('aborted', `aborted by the caller${why}`, { cause: reason });
}

export function throwIfAborted(signal?: AbortSignal): void {
  if (signal?.aborted) throw aborted(signal);
}

// Maps a DOMException of a file system, a fetch or a buffer to a TernError.
const codes: Record<string, ErrorCode> = {
  AbortError: 'aborted',
  QuotaExceededError: 'quota',
  NoModificationAllowedError: 'busy',
  NotReadableError: 'io',
  NotFoundError: 'io',
  SecurityError: 'io',
  RangeError: 'memory',
};

export function toTernError(error: unknown): TernError {
  if (error instanceof TernError) return error;
  const { name, message } = error instanceof Error ? error : { name: '', message: String(error) };
  const code = codes[name] ?? 'trap';
  return new TernError(code, code === 'trap' && name ? `${name}: ${message}` : message, { cause: error });
}

export function plain(error: unknown): PlainError {
  const e = toTernError(error);
  return { code: e.code, message: e.message, ...(e.stack ? { stack: e.stack } : {}) };
}

export function fromPlain(error: PlainError): TernError {
  const e = new TernError(error.code, error.message);
  if (error.stack) e.stack = error.stack;
  return e;
}
