// A memory in a worker: {add: texts, ask, leave: stay open} -> {storage, n, found} or {error}.
import { MemoryStore } from '/package/memory.js';

const sqlite = async () => (await import('/sqlite/index.mjs')).default();
self.onmessage = async ({ data: { add = [], ask, leave } }) => {
  try {
    const memory = await MemoryStore.open({ name: 'my notes', sqlite });
    for (const text of add) await memory.add(text);
    const { hits } = await memory.recall(ask);
    const { nRecords: n } = await memory.info();
    if (!leave) memory.close();
    self.postMessage({ storage: memory.storage, n, found: hits.map(({ text }) => text) });
  } catch (e) {
    self.postMessage({ error: { code: e.code, message: String(e.message) } });
  }
};
