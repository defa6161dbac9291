// tern-engine: small language models in the browser and in Node.
export type * from './api.js';
export type * from './chat/openai.js';
export type { CheckItem, CheckReport, DeviceMemory, InfillInfo, MediaInfo, MemoryInfo } from './engine/types.js';
export { TernError, type ErrorCode } from './engine/error.js';
export { Models } from './models.js';
export { Report } from './report.js';
export { Tern, type Chat } from './tern.js';
