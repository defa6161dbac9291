// Starts a server for a test of clients, which ends with the test.
import { spawn } from "node:child_process";

// The address that it listens on, once it does.
export async function startServer(command, args) {
    const server = spawn(command, args, { env: { ...process.env, TERN_DEVICE: "cpu" } });
    process.on("exit", () => server.kill());
    return await new Promise((done, fail) => {
        let log = "";
        server.stderr.on("data", (bytes) => {
            log += bytes;
            const found = log.match(/listening url=(\S+)/);
            if (found) done(found[1]);
        });
        server.on("exit", () => fail(new Error(log)));
    });
}
