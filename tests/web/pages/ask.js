// Asks a module worker of this folder: ask('/tests/probe.js', {...}) -> its answer to one question.
// start(url) gives a worker that answers one question after another: { ask, end }. An answer
// { error } fails.
export function start(url) {
  const worker = new Worker(url, { type: 'module' });
  const ask = (question) =>
    new Promise((done, fail) => {
      worker.onmessage = ({ data }) =>
        data?.error === undefined ? done(data) : fail(new Error(data.error));
      worker.onerror = (e) => fail(new Error(`${url}: ${e.message ?? 'cannot be loaded'}`));
      worker.postMessage(question);
    });
  return { ask, end: () => worker.terminate() };
}

export async function ask(url, question) {
  const worker = start(url);
  try {
    return await worker.ask(question);
  } finally {
    worker.end();
  }
}
