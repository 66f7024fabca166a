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
