// Resolves after pending events, such as messages, have been handled.
export function nextTask(): Promise<void> {
  const { setImmediate } = globalThis as unknown as { setImmediate?: (f: () => void) => void };
  if (setImmediate) return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
