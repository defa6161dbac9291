export const RATE = 16000; // samples a second
export const FRAME = 512; // samples: 32 milliseconds
