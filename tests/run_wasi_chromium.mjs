// node run_wasi_chromium.mjs [--file NAME=PATH]... PROGRAM.wasm [ARGUMENT]...
//
// Runs a WASI program in a worker of headless Chromium, without any package: what it writes comes
// out here, and its exit status becomes ours. It sees the named files, read-only, and may make
// folders, which are nothing. CHROMIUM names another browser of that kind.
import { spawn } from 'node:child_process';
import { createReadStream, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const args = process.argv.slice(2), files = [];
for (; args[0] === '--file'; args.splice(0, 2)) {
    const [name, ...path] = args[1].split('=');
    files.push({ name, path: path.join('=') });
}
const program = args[0];

// In the worker. Descriptor 3 is the folder of the files.
async function work({ names, args }) {
    const OK = 0, BADF = 8, NOENT = 44, NOTSUP = 58;
    const say = (path, body) => {
        const request = new XMLHttpRequest();
        request.open('POST', path, false);
        request.send(body);
    };
    const files = [];
    for (const [i, name] of names.entries())
        files.push({ name, bytes: new Uint8Array(await (await fetch(`/file/${i}`)).arrayBuffer()) });
    const open = [null, null, null, null], text = new TextEncoder();
    let memory;
    const view = () => new DataView(memory.buffer);
    const string = (at, n) => new TextDecoder().decode(new Uint8Array(memory.buffer, at, n));
    const list = texts => [(p, bytes) => {
        for (const t of texts) {
            view().setUint32(p, bytes, true), p += 4;
            new Uint8Array(memory.buffer).set(text.encode(t + '\0'), bytes);
            bytes += text.encode(t).length + 1;
        }
        return OK;
    }, (n, size) => {
        view().setUint32(n, texts.length, true);
        view().setUint32(size, texts.reduce((sum, t) => sum + text.encode(t).length + 1, 0), true);
        return OK;
    }];
    const stat = (at, type, size) => {
        for (let i = 0; i < 64; i += 8) view().setBigUint64(at + i, 0n, true);
        view().setUint8(at + 16, type), view().setBigUint64(at + 32, BigInt(size), true);
        return OK;
    };
    const pieces = (iovs, n) => Array.from({ length: n }, (_, i) => {
        const at = view().getUint32(iovs + 8 * i, true);
        return new Uint8Array(memory.buffer, at, view().getUint32(iovs + 8 * i + 4, true));
    });
    const read = (f, at, iovs, n, got) => {
        let sum = 0;
        for (const to of pieces(iovs, n)) {
            const part = f.bytes.subarray(at + sum, at + sum + to.length);
            to.set(part), sum += part.length;
        }
        view().setUint32(got, sum, true);
        return sum;
    };
    const wasi = {
        args_get: list(args)[0], args_sizes_get: list(args)[1],
        environ_get: list([])[0], environ_sizes_get: list([])[1],
        clock_time_get(id, precision, at) {
            const ms = id === 0 ? performance.timeOrigin + performance.now() : performance.now();
            view().setBigUint64(at, BigInt(Math.round(ms * 1e6)), true);
            return OK;
        },
        random_get(at, n) {
            crypto.getRandomValues(new Uint8Array(memory.buffer, at, n));
            return OK;
        },
        fd_write(fd, iovs, n, wrote) {
            if (fd !== 1 && fd !== 2) return BADF;
            const parts = pieces(iovs, n).map(p => p.slice());
            say(`/out/${fd}`, new Blob(parts));
            view().setUint32(wrote, parts.reduce((sum, p) => sum + p.length, 0), true);
            return OK;
        },
        fd_prestat_get(fd, at) {
            if (fd !== 3) return BADF;
            view().setUint32(at, 0, true), view().setUint32(at + 4, 1, true);
            return OK;
        },
        fd_prestat_dir_name(fd, at) { view().setUint8(at, 46); return OK; },
        fd_fdstat_get(fd, at) {
            if (fd > 3 && !open[fd]) return BADF;
            for (let i = 0; i < 24; i += 8) view().setBigUint64(at + i, i ? ~0n : 0n, true);
            view().setUint8(at, fd < 3 ? 2 : fd === 3 ? 3 : 4);
            return OK;
        },
        fd_filestat_get: (fd, at) => open[fd] ? stat(at, 4, open[fd].file.bytes.length) : BADF,
        path_filestat_get(fd, flags, path, n, at) {
            const file = files.find(f => f.name === string(path, n));
            return file ? stat(at, 4, file.bytes.length) : NOENT;
        },
        path_open(fd, look, path, n, how, rights, inherit, flags, at) {
            const file = files.find(f => f.name === string(path, n));
            if (!file) return NOENT;
            view().setUint32(at, open.push({ file, at: 0 }) - 1, true);
            return OK;
        },
        fd_read(fd, iovs, n, got) {
            if (!open[fd]) return BADF;
            open[fd].at += read(open[fd].file, open[fd].at, iovs, n, got);
            return OK;
        },
        fd_pread(fd, iovs, n, offset, got) {
            if (!open[fd]) return BADF;
            read(open[fd].file, Number(offset), iovs, n, got);
            return OK;
        },
        fd_seek(fd, offset, whence, at) {
            if (!open[fd]) return BADF;
            const from = [0, open[fd].at, open[fd].file.bytes.length][whence];
            open[fd].at = from + Number(offset);
            view().setBigUint64(at, BigInt(open[fd].at), true);
            return OK;
        },
        fd_close(fd) { open[fd] = null; return OK; },
        fd_fdstat_set_flags: () => OK,
        path_create_directory: () => OK,
        sched_yield: () => OK,
        proc_exit(status) { throw { status }; },
    };
    let status = 0;
    try {
        const module = await WebAssembly.compileStreaming(fetch('/program'));
        const other = new Proxy(wasi, { get: (w, name) => w[name] ?? (() => NOTSUP) });
        const imports = {};
        for (const i of WebAssembly.Module.imports(module))
            (imports[i.module] ??= {})[i.name] = other[i.name];
        const instance = await WebAssembly.instantiate(module, imports);
        memory = instance.exports.memory;
        instance.exports._start();
    } catch (e) {
        status = e.status ?? 1;
        if (e.status === undefined) say('/out/2', `${e.stack ?? e}\n`);
    }
    say('/end', String(status));
}

const worker = `onmessage = e => (${work})(e.data);`;
const page = `<!doctype html><script>new Worker('/worker.js').postMessage(${JSON.stringify(
    { names: files.map(f => f.name), args })});</script>`;

// Clocks are fine only in isolated pages.
const isolated = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
const server = createServer((request, response) => {
    const answer = (type, body) => response.writeHead(200, { 'Content-Type': type, ...isolated }).end(body);
    const [, what, which] = request.url.split('/');
    if (what === '') answer('text/html', page);
    else if (what === 'worker.js') answer('text/javascript', worker);
    else if (what === 'program') answer('application/wasm', readFileSync(program));
    else if (what === 'file') createReadStream(files[which].path).pipe(response);
    else if (what === 'out')
        request.on('data', text => (which === '1' ? process.stdout : process.stderr).write(text))
            .on('end', () => answer('text/plain', ''));
    else if (what === 'end') request.on('data', status => end(Number(status)));
    else response.writeHead(404).end();
});
const profile = mkdtempSync(join(tmpdir(), 'tern-chromium-'));
let browser;
function end(status) {
    process.exitCode = status;
    process.kill(-browser.pid, 'SIGKILL'); // with its helpers
    server.close();
    server.closeAllConnections();
}
server.listen(0, '127.0.0.1', () => {
    browser = spawn(process.env.CHROMIUM ?? 'chromium', ['--headless', '--no-sandbox', '--disable-gpu',
        `--user-data-dir=${profile}`, ...(process.env.CHROMIUM_FLAGS?.split(' ') ?? []),
        `http://127.0.0.1:${server.address().port}/`], { stdio: 'ignore', detached: true });
    browser.on('error', e => { console.error(`chromium: ${e.message}`); process.exit(1); });
    browser.on('exit', () => {
        rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
        process.exitCode ??= 1;
        server.close();
    });
});
