// Requests, and why one got no answer. Browsers keep the reason to themselves ("Failed to fetch"), so it is found out
// afterwards: no network, a policy, or a server that does not let this site's pages read.
import { TernError, aborted } from '../errors.js';
import { inNode } from '../platform.js';

const SLOW_MS = 2500; // without an answer: said, not given up
const PROBE_MS = 1500;

export interface Asking {
  fetch: typeof fetch;
  headers?: Record<string, string>;
  method?: string;
  signal?: AbortSignal | undefined;
  onRetry?: ((reason: string) => void) | undefined; // told while it waits
}

// No answer came. lasting: asking again would not help.
export class Unreached extends TernError {
  constructor(message: string, readonly lasting: boolean, options?: ErrorOptions) {
    super('network', message, options);
  }
}

// The answer, whatever its status.
export async function ask(url: string, { fetch, headers, method, signal, onRetry }: Asking): Promise<Response> {
  const { host } = new URL(url);
  const slow = onRetry && setTimeout(() => onRetry(`${host} has not answered for ${SLOW_MS / 1000} s`), SLOW_MS);
  const policy = listenForPolicy();
  try {
    // The browser's own cache would store the model a second time, and may answer for the server.
    return await fetch(url, {
      cache: 'no-store', ...(headers ? { headers } : {}), ...(method ? { method } : {}), ...(signal ? { signal } : {}),
    });
  } catch (cause) {
    if (signal?.aborted) throw aborted(signal);
    const [why, lasting] = await reason(url, Object.keys(headers ?? {}), cause as Error, policy.violated);
    throw new Unreached(why, lasting, { cause });
  } finally {
    clearTimeout(slow);
    policy.end();
  }
}

// As JSON; a server that answers something else (a page to log in) is told.
export async function askJson<T>(url: string, answer: Response): Promise<T> {
  try {
    return await answer.json() as T;
  } catch (cause) {
    throw new TernError('network', `${new URL(url).host} answers with something that is not JSON (${url})`, { cause });
  }
}

function listenForPolicy(): { violated(): boolean; end(): void } {
  let violated = false;
  const note = () => { violated = true; };
  globalThis.addEventListener?.('securitypolicyviolation', note);
  return { violated: () => violated, end: () => globalThis.removeEventListener?.('securitypolicyviolation', note) };
}

async function reason(url: string, headers: string[], cause: Error, violated: () => boolean): Promise<[string, boolean]> {
  const { host, protocol, origin } = new URL(url);
  const place = (globalThis as { location?: Location }).location;
  const told = (cause.cause as { code?: string } | undefined)?.code ?? cause.message;
  const missing = `${host} cannot be reached (${told})`;
  if (inNode() || !place || !/^https?:/.test(url)) return [missing, false];
  if (navigator.onLine === false) return [`${host} cannot be reached: this device is offline`, false];
  if (origin === place.origin) return [missing, false];
  const answers = await answersAtAll(url);
  if (violated())
    return [`the page's Content-Security-Policy does not allow requests to ${host} (connect-src)`, true];
  const more = headers.length ? `, and Access-Control-Allow-Headers for ${headers.join(', ')}` : '';
  const cors = `pages of ${place.origin} read from it (CORS: Access-Control-Allow-Origin is missing${more})`;
  if (answers) return [`${host} answers, but does not let ${cors}`, true];
  if (place.protocol === 'https:' && protocol === 'http:' && !/^(localhost|127\.|\[::1\])/.test(host))
    return [`${host} cannot be reached: a page over https may not read from http:`, true];
  return [globalThis.crossOriginIsolated ? `${missing}, or it does not let ${cors}` : missing, false];
}

// Without asking to read the answer. An isolated page is refused that, too, by most servers.
async function answersAtAll(url: string): Promise<boolean> {
  try {
    await fetch(url, { mode: 'no-cors', method: 'HEAD', cache: 'no-store', signal: AbortSignal.timeout(PROBE_MS) });
    return true;
  } catch {
    return false;
  }
}
