// What the pages may load and do, said once: the server sends it as a header, the build writes it into
// each page for hosts that send none.
// - Scripts, workers and styles are files of this site: no inline script, no blob: worker, no eval;
//   'wasm-unsafe-eval' allows WebAssembly to be compiled and nothing else.
// - Models come from any https site (and from this machine, for development); nothing is sent there.
const rules = {
  'default-src': "'none'",
  'script-src': "'self' 'wasm-unsafe-eval'",
  'worker-src': "'self'",
  'style-src': "'self'",
  'img-src': "'self' data:", // images that were attached
  'manifest-src': "'self'",
  'connect-src': "'self' https: http://localhost:* http://127.0.0.1:*",
  'base-uri': "'none'",
  'form-action': "'none'",
};

const text = (table) =>
  Object.entries(table)
    .map(([name, value]) => `${name} ${value}`)
    .join('; ');

// frame-ancestors counts in a header only.
export const cspHeader = text({ ...rules, 'frame-ancestors': "'none'" });
export const cspMeta = text(rules);
