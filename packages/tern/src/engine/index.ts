// The engine: tern-engine/engine.
export { loadEngine } from './engine.js';
export { TernError, type ErrorCode } from './error.js';
export type * from './types.js';
