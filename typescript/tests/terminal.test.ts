/** Terminals: keys in, what is shown out, and a connection that broke goes on where it was. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, SandtimerError, UnauthorizedError, UnreachableError, type Terminal } from "sandtimer";
import { Proxy, Serving } from "./support.js";

let serving: Serving;

before(async () => {
  serving = await Serving.start("alice a/secret+1\n");
});
after(() => serving[Symbol.asyncDispose]());

const alice = () => new Client({ url: serving.url, token: "a/secret+1" });

/** Reads until this is shown. */
async function until(shown: AsyncIterator<Uint8Array>, words: string): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  while (!text.includes(words)) {
    const { done, value } = await shown.next();
    assert.ok(done !== true, `\`${words}\` is not shown: ${text}`);
    text += decoder.decode(value, { stream: true });
  }
  return text;
}

async function rest(terminal: Terminal): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of terminal) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

test("keys are typed, a size is changed, and the end comes with its outcome", async () => {
  await using run = await alice().start({ command: "stty size; read x; stty size; exit 3", terminal: { columns: 70, rows: 20 } });
  await using terminal = await run.terminal();
  const shown = terminal[Symbol.asyncIterator]();
  await until(shown, "20 70\r\n");
  terminal.resize(90, 30);
  terminal.write("ä\n");
  assert.equal(await rest(terminal), "ä\r\n30 90\r\n");
  assert.equal(terminal.end?.outcome.exit_code, 3);
  assert.equal(terminal.dropped, 0);
  assert.throws(() => terminal.write("late"), UnreachableError);
});

test("a connection that broke goes on behind the last byte", async () => {
  let broken = false;
  await using proxy = await Proxy.start(serving.url, (bytes, socket) => {
    socket.write(bytes);
    if (!broken && bytes.includes("line 20\r")) {
      broken = true;
      socket.destroy();
    }
  });
  const client = new Client({ url: proxy.url, token: "a/secret+1" });
  await using run = await client.start({ command: "for i in $(seq 40); do echo line $i; sleep 0.01; done", terminal: {} });
  const first = await run.terminal();
  let had = "";
  await assert.rejects(async () => {
    for await (const piece of first) had += Buffer.from(piece).toString();
  }, UnreachableError);
  await using second = await run.terminal({ cursor: first.cursor });
  had += await rest(second);
  assert.equal(had, Array.from({ length: 40 }, (_, at) => `line ${at + 1}\r\n`).join(""));
});

test("a refusal says why, and so does a runtime without WebSockets", async () => {
  await using run = await alice().start({ command: "sleep 20", wall_ms: 20_000 });
  const code = (wanted: string) => (error: unknown) => error instanceof SandtimerError && error.code === wanted;
  await assert.rejects(run.terminal(), code("no_terminal"));
  await assert.rejects(alice().attach("nobody").terminal(), code("run_not_found"));
  await assert.rejects(new Client({ url: serving.url, token: "wrong" }).attach(run.id).terminal(), UnauthorizedError);
  const own = globalThis.WebSocket;
  try {
    delete (globalThis as { WebSocket?: unknown }).WebSocket;
    const bare = new Client({ url: serving.url, token: "a/secret+1" });
    await assert.rejects(bare.attach(run.id).terminal(), code("no_web_socket"));
    const given = new Client({ url: serving.url, token: "a/secret+1", webSocket: own });
    await assert.rejects(given.attach(run.id).terminal(), code("no_terminal"));
  } finally {
    globalThis.WebSocket = own;
  }
});

/** A socket whose messages and end a test gives. */
class FakeSocket {
  static last: FakeSocket;
  binaryType = "";
  readyState = 1;
  readonly #listeners = new Map<string, ((event: { data: unknown }) => void)[]>();

  constructor() {
    FakeSocket.last = this;
    queueMicrotask(() => this.emit("open"));
  }

  addEventListener(type: string, listener: (event: { data: unknown }) => void): void {
    this.#listeners.set(type, [...(this.#listeners.get(type) ?? []), listener]);
  }

  emit(type: string, data?: unknown): void {
    for (const listener of this.#listeners.get(type) ?? []) listener({ data });
  }

  send(): void {}

  close(): void {
    this.readyState = 3;
    this.emit("close");
  }
}

/** A terminal over such a socket. */
async function faked(signal?: AbortSignal | undefined): Promise<{ terminal: Terminal; socket: FakeSocket }> {
  await using run = await alice().start({ command: "sleep 20", terminal: {} });
  const client = new Client({ url: serving.url, token: "a/secret+1", webSocket: FakeSocket });
  const terminal = await client.attach(run.id).terminal({ signal });
  return { terminal, socket: FakeSocket.last };
}

test("a terminal that falls silent ends, and a heartbeat keeps it", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { terminal, socket } = await faked();
  context.mock.timers.tick(59_000);
  socket.emit("message", '{"heartbeat":true}');
  context.mock.timers.tick(59_000);
  assert.equal(socket.readyState, 1);
  context.mock.timers.tick(2_000);
  assert.equal(socket.readyState, 3);
  await assert.rejects(rest(terminal), { code: "unreachable", message: /fell silent/ });
});

test("what is no message ends the terminal, not the process", async () => {
  for (const text of ["<html>", "null", "7"]) {
    const { terminal, socket } = await faked();
    socket.emit("message", new TextEncoder().encode("shown").buffer);
    socket.emit("message", text);
    const shown = terminal[Symbol.asyncIterator]();
    assert.equal(Buffer.from((await shown.next()).value as Uint8Array).toString(), "shown");
    await assert.rejects(shown.next(), UnreachableError);
  }
});

test("a reader that is too slow is told where to go on", async () => {
  const { terminal, socket } = await faked();
  const piece = new Uint8Array(1 << 20).buffer;
  for (let index = 0; index < 64; index += 1) socket.emit("message", piece);
  assert.equal(socket.readyState, 3);
  await assert.rejects(rest(terminal), { code: "unreachable", message: /wait to be read/ });
  assert.equal(terminal.cursor, 16 << 20);
});

test("a signal is left alone once the terminal is open", async () => {
  const signal = new AbortController().signal;
  const left: unknown[] = [];
  signal.addEventListener = (_: string, listener: unknown) => void left.push(listener);
  signal.removeEventListener = (_: string, listener: unknown) => void left.splice(left.indexOf(listener), 1);
  const { terminal } = await faked(signal);
  assert.deepEqual(left, []);
  terminal.close();
});
