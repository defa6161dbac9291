// Asks a module worker of this folder: ask('/tests/probe.js', {...}) -> its answer to one question.
// start(url) gives a worker that answers one question after another: { ask, end }. An answer
// { error } fails.
// A worker that asks { thread, script, start } gets a worker of the page's thread, and ends it with
// { endThread }.
export function start(url) {
  const worker = new Worker(url, { type: 'module' });
  const threads = new Map();
  const isForThreads = ({ thread, endThread, script, start }) => {
    if (thread !== undefined) {
      threads.set(thread, new Worker(script.url, { type: script.type }));
      threads.get(thread).postMessage(start);
    } else if (endThread !== undefined) threads.get(endThread).terminate();
    return thread !== undefined || endThread !== undefined;
  };
  const ask = (question) =>
    new Promise((done, fail) => {
      worker.onmessage = ({ data }) => {
        if (isForThreads(data ?? {})) return;
        if (data?.error === undefined) done(data);
        else fail(new Error(data.error));
      };
      worker.onerror = (e) => fail(new Error(`${url}: ${e.message ?? 'cannot be loaded'}`));
      worker.postMessage(question);
    });
  const end = () => {
    worker.terminate();
    for (const thread of threads.values()) thread.terminate();
  };
  return { ask, end };
}

export async function ask(url, question) {
  const worker = start(url);
  try {
    return await worker.ask(question);
  } finally {
    worker.end();
  }
}
