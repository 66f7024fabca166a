/** Contexts and sessions of a real server. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, SandtimerError } from "sandtimer";
import { Serving, collect, until } from "./support.js";

let serving: Serving;
let client: Client;

before(async () => {
  serving = await Serving.start();
  client = serving.client();
});
after(() => serving[Symbol.asyncDispose]());

test("code finds what earlier code has left, and shows rich results", async () => {
  await using context = await client.context({ env: { WORD: "hello" } });
  await context.execute("import os\nclass Rich:\n    def _repr_html_(self): return '<b>7</b>'\n    def __repr__(self): return '7'");
  const outcome = await context.execute("print(os.environ['WORD'])\ndisplay(Rich())\n{'x': [1, None]}");
  assert.deepEqual([outcome.ending, outcome.state, outcome.stdout, outcome.execution_count], ["returned", "kept", "hello\n", 2]);
  assert.deepEqual(outcome.value, { x: [1, null] });
  const [shown] = outcome.results as Array<Record<string, unknown>>;
  assert.deepEqual([shown?.["text/html"], shown?.["text/plain"]], ["<b>7</b>", "7"]);
  assert.deepEqual(outcome.notes, []);
  const raised = await context.execute("1 / 0");
  assert.deepEqual([raised.ending, (raised.error as { type: string }).type], ["raised", "ZeroDivisionError"]);
});

test("a limit ends the cell and not the context, and the last cell can be undone", async () => {
  await using context = await client.context();
  await context.execute("x = 1");
  const deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 2\nwhile True: pass";
  const outcome = await context.execute(deaf, { wall_ms: 300 });
  assert.deepEqual([outcome.ending, outcome.state, outcome.tree.survivors], ["timeout", "rolled_back", 0]);
  await context.execute("x = 3");
  assert.equal((await context.undo()).can_undo, false);
  assert.equal((await context.execute("x")).value, 1);
  await assert.rejects(async () => {
    for (;;) await context.undo();
  }, { code: "nothing_to_undo" });
});

test("what a cell writes can be followed, and the cell be interrupted", async () => {
  await using context = await client.context();
  const run = await context.start("import time\nprint('begun', flush=True)\ntime.sleep(60)");
  let text = "";
  for await (const chunk of run.output()) {
    text += chunk.text;
    if (text === "begun\n") assert.equal(await context.interrupt(), true);
  }
  assert.equal(text, "begun\n");
  const outcome = await run.wait();
  assert.deepEqual([outcome.ending, (outcome.error as { type: string }).type], ["raised", "KeyboardInterrupt"]);
  assert.equal(await context.interrupt(), false);
});

test("an abort cancels what is executed, and withdraws what waits for its turn", async () => {
  await using context = await client.context();
  await context.execute("x = []");
  const abort = new AbortController();
  const first = context.execute("x.append(1)\nwhile True: pass", { signal: abort.signal });
  await until(async () => (await context.info()).status === "busy");
  const leave = new AbortController();
  const second = context.start("x.append(2)", { signal: leave.signal });
  await until(async () => (await context.info()).waiting === 1);
  leave.abort();
  await assert.rejects(second, { name: "AbortError" });
  abort.abort();
  await assert.rejects(first, { name: "AbortError" });
  assert.deepEqual((await context.execute("x")).value, []);
});

test("what waits long for its turn is a run all the same", async () => {
  const impatient: typeof fetch = (url, init) =>
    fetch(url, { ...init, ...(typeof init?.body === "string" ? { body: init.body.replace(/"turn_ms":\d+/, '"turn_ms":50') } : {}) });
  await using context = await client.context();
  const busy = await context.start("import time; time.sleep(60)");
  const other = new Client({ url: serving.url, fetch: impatient }).attachContext(context.id);
  const [waits, given] = [await other.start("x = 1"), await other.start("x = 2")];
  assert.deepEqual([(await waits.info()).status, (await given.info()).status], ["queued", "queued"]);
  await given.kill();
  assert.equal((await given.wait())?.ending, "cancelled");
  await busy.kill();
  assert.equal((await context.execute("x")).value, 1);
});

test("a session keeps its shell", async () => {
  await using session = await client.session({ env: { A: "1" } });
  await session.execute("cd /tmp; f() { echo \"f $A\"; }");
  const outcome = await session.execute("pwd; f; false");
  assert.deepEqual([outcome.exit_code, outcome.stdout, outcome.state], [1, "/tmp\nf 1\n", "kept"]);
  const ended = await session.execute("echo begun; sleep 60", { wall_ms: 300 });
  assert.deepEqual([ended.ending, ended.stdout], ["timeout", "begun\n"]);
  const reads = await session.start("read word; echo got $word", { stdin_open: true, wall_ms: 20_000 });
  assert.equal((await reads.write("it\n")).written, 3);
  assert.equal((await reads.wait()).stdout, "got it\n");
  const run = await session.start("f; f >&2");
  const chunks = await collect(run.output());
  assert.deepEqual(chunks.map(({ stream, text }) => [stream, text]).sort(), [["stderr", "f 1\n"], ["stdout", "f 1\n"]]);
});

test("contexts are listed, found again and closed", async () => {
  const context = await client.context({ idle_ms: "1h" });
  const session = await client.session();
  const ids = async (of: Promise<Array<{ context_id: string }>>) => (await of).map((info) => info.context_id);
  assert((await ids(client.contexts())).includes(context.id));
  assert.deepEqual((await ids(client.sessions())).includes(session.id), true);
  await client.attachContext(context.id).execute("y = 6");
  assert.equal((await context.execute("y * 7")).value, 42);
  assert.equal((await client.attachSession(session.id).info()).language, "bash");
  await context.close();
  await session.close();
  await assert.rejects(context.execute("1"), (error: unknown) => error instanceof SandtimerError && error.code === "context_not_found");
  // It is gone, which is what leaving a scope asks for.
  await context[Symbol.asyncDispose]();
});
