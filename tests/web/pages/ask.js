// Asks a module worker of this folder one question: ask('/tests/probe.js', {...}) -> its answer.
// An answer { error } fails.
export function ask(url, question) {
  return new Promise((done, fail) => {
    const worker = new Worker(url, { type: 'module' });
    worker.onmessage = ({ data }) => {
      if (data?.log !== undefined) return console.log(data.log);
      worker.terminate();
      if (data?.error !== undefined) fail(new Error(data.error));
      else done(data);
    };
    worker.onerror = (e) => fail(new Error(`${url}: ${e.message ?? 'cannot be loaded'}`));
    worker.postMessage(question);
  });
}
