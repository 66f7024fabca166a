/** A real server on a port of loopback, and a proxy in front of it that breaks connections as it is told. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "sandtimer";

const BINARY = process.env["SANDTIMER_BIN"] ?? new URL("../../../target/debug/sandtimer", import.meta.url).pathname;

// A test that hangs ends its file, and what it started goes with the pipes and sockets.
setTimeout(() => {
  console.error("the tests of this file did not end in time");
  process.exit(1);
}, 240_000).unref();

export class Serving implements AsyncDisposable {
  #process: ChildProcess | undefined;
  readonly directory = mkdtempSync(join(tmpdir(), "sandtimer-client-"));
  url = "";

  static async start(tokens?: string): Promise<Serving> {
    const serving = new Serving();
    await serving.launch(tokens);
    return serving;
  }

  /** Starts it, again with the records of the last time. */
  async launch(tokens?: string): Promise<void> {
    const file = join(this.directory, "tokens");
    if (tokens !== undefined) writeFileSync(file, tokens, { mode: 0o600 });
    const options = tokens === undefined ? [] : ["--token-file", file];
    const child = spawn(BINARY, ["serve", "--listen", "127.0.0.1:0", "--state-dir", join(this.directory, "state"), ...options], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#process = child;
    const failed = once(child, "error").then(([error]) => Promise.reject(error as Error));
    const said = (async () => {
      for await (const line of createInterface({ input: child.stdout as NonNullable<typeof child.stdout> })) {
        const url = /listening on (http:\S+)/.exec(line)?.[1];
        if (url !== undefined) return url;
      }
      throw new Error(`${BINARY} did not come up`);
    })();
    this.url = await Promise.race([said, failed]);
  }

  /** Ends it as a crash does. */
  async crash(): Promise<void> {
    await this.#end("SIGKILL");
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    this.#process = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    await ended;
  }

  client(): Client {
    return new Client({ url: this.url });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#end("SIGTERM");
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** What a proxy does with the bytes of an answer: passes pieces on, and may cut the connection. */
export type Treatment = (bytes: Buffer, socket: Socket, connection: number) => void;

/** Passes requests on as they are, and answers as it is told. */
export class Proxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  target: string;
  connections = 0;

  private constructor(target: string, treatment: Treatment) {
    this.target = target;
    this.#server = createServer((near) => {
      this.connections += 1;
      const connection = this.connections;
      const { hostname, port } = new URL(this.target);
      const far = connect(Number(port), hostname);
      for (const [one, other] of [[near, far], [far, near]] as const) {
        this.#sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => {
          this.#sockets.delete(one);
          other.destroy();
        });
      }
      near.on("data", (bytes) => far.write(bytes));
      far.on("data", (bytes) => treatment(bytes, near, connection));
    });
  }

  static async start(target: string, treatment: Treatment): Promise<Proxy> {
    const proxy = new Proxy(target, treatment);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}

/** Waits until it holds, asking again and again. */
export async function until(holds: () => Promise<boolean>, most = 1000): Promise<void> {
  for (let tries = 0; tries < most; tries += 1) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error("it never held");
}

/** All of them; more than any test expects is a failure, not a wait for ever. */
export async function collect<Item>(items: AsyncIterable<Item>, most = 1_000): Promise<Item[]> {
  const collected: Item[] = [];
  for await (const item of items) {
    collected.push(item);
    if (collected.length > most) throw new Error(`there are more than ${most}`);
  }
  return collected;
}
