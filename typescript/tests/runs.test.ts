/** Runs of a real server: started, followed, controlled, cancelled. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { SandtimerError, UnauthorizedError, UnreachableError, Client, type RunEvent } from "sandtimer";
import { Serving, collect, until } from "./support.js";

let serving: Serving;
let client: Client;

before(async () => {
  serving = await Serving.start();
  client = serving.client();
});
after(() => serving[Symbol.asyncDispose]());

const refused = (code: string, named = "") => (error: unknown) => {
  assert(error instanceof SandtimerError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, new RegExp(named));
  assert.notEqual(error.hint, "");
  return true;
};

test("a command runs to its end, and what became of it is data", async () => {
  const outcome = await client.run({ command: ["sh", "-c", "echo out; echo $WORD >&2; exit 3"], env: { WORD: "ünï" }, memory_bytes: "256M" });
  assert.deepEqual([outcome.ending, outcome.exit_code, outcome.ok, outcome.stdout, outcome.stderr], ["exited", 3, false, "out\n", "ünï\n"]);
  const code = await client.run({ code: "print(input())", language: "python", stdin: "fed" });
  assert.deepEqual([code.ok, code.stdout], [true, "fed\n"]);
  const bytes = await client.run({ command: "od -An -tx1", stdin: Uint8Array.of(0, 255) });
  assert.equal(bytes.stdout, " 00 ff\n");
});

test("a limit that fires is data and says why", async () => {
  const outcome = await client.run({ command: "echo begun; sleep 60 & sleep 60", wall_ms: 300 });
  assert.deepEqual([outcome.ending, outcome.stdout, outcome.tree.survivors], ["timeout", "begun\n", 0]);
  assert.deepEqual([outcome.verdict?.kind, outcome.verdict?.limit_ms, outcome.verdict?.source], ["wall", 300, "call"]);
});

test("what is refused names the field and what would work", async () => {
  await assert.rejects(client.run({ command: ["true"], wall_ms: -1 }), refused("bad_limit", "wall_ms"));
  await assert.rejects(client.run({ command: ["no-such-program-here"] }), refused("command_not_found", "no-such-program-here"));
  const misspelt = { command: ["true"], wal_ms: 1 } as object;
  await assert.rejects(client.run(misspelt), (error: unknown) => {
    assert(error instanceof SandtimerError);
    assert.deepEqual([error.code, error.status, error.retryable, error.details["key"]], ["unknown_field", 400, false, "wal_ms"]);
    return true;
  });
  await assert.rejects(client.attach("nobody").info(), refused("run_not_found", "nobody"));
});

test("an abort cancels a run in the foreground", async () => {
  const abort = new AbortController();
  const running = client.run({ command: ["sleep", "987"] }, { signal: abort.signal });
  const mine = async () => (await client.runs()).runs.find((run) => run.command[1] === "987");
  await until(async () => (await mine())?.status === "running");
  abort.abort(new RangeError("enough"));
  await assert.rejects(running, new RangeError("enough"));
  await until(async () => (await mine())?.ending === "cancelled");
  await assert.rejects(client.run({ command: ["true"] }, { signal: abort.signal }), RangeError);
});

test("a client that is killed behind its first wait leaves no run", async () => {
  const program = `
    import { Client } from "sandtimer";
    const short = (given) => given?.replace("50000", "300");
    const fetch = (url, sent) => globalThis.fetch(short(String(url)), { ...sent, body: short(sent.body) });
    await new Client({ url: process.argv[1], fetch }).run({ command: ["sleep", "986"] });
  `;
  const asking = spawn(process.execPath, ["--input-type=module", "--eval", program, serving.url], { stdio: "inherit" });
  const mine = async () => (await client.runs()).runs.find((run) => run.command[1] === "986");
  // Many waits long, and longer than the server bears with a client that does not ask.
  await until(async () => ((await mine())?.elapsed_ms ?? 0) > 12_000, 3_000);
  assert.equal((await mine())?.status, "running");
  asking.kill("SIGKILL");
  await until(async () => (await mine())?.ending === "cancelled", 3_000);
  assert.match((await mine())?.sentence ?? "", /has not waited for it for 10 s/);
});

test("an abort while a run in the background is waited for leaves the run", async () => {
  await using run = await client.start({ command: ["sleep", "60"] });
  await assert.rejects(run.wait({ signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
  await assert.rejects(collect(run.events({ signal: AbortSignal.timeout(100) })), { name: "TimeoutError" });
  assert.equal((await run.info()).status, "running");
});

test("a run is paused, extended, signalled, fed and killed", async () => {
  const script = "trap 'echo heard' USR1; echo up; read word; echo $word; while :; do sleep 0.02; done";
  await using run = await client.start({ command: ["bash", "-c", script], stdin_open: true, wall_ms: 60_000 });
  const output = run.output({ stream: "stdout" });
  let text = "";
  const said = async (word: string) => {
    while (!text.includes(word)) {
      const next = await output.next();
      assert(!next.done, text);
      text += next.value.text;
    }
  };
  await said("up\n");
  assert.equal((await run.write(Uint8Array.of(0x77, 0xc3))).written, 2);
  assert.deepEqual(await run.write(Uint8Array.of(0xb6, 0x72, 0x64, 0x0a), { eof: true }), { run_id: run.id, written: 4, closed: true });
  await said("wörd\n");
  await run.signal("SIGUSR1");
  await said("heard\n");
  await run.pause();
  await assert.rejects(run.pause(), refused("wrong_state"));
  await run.resume();
  const { wall_left_ms } = await run.extend(3_600_000);
  assert((wall_left_ms ?? 0) > 3_600_000);
  await assert.rejects(run.delete(), refused("run_running"));
  const killed = await run.kill({ reason: "seen enough" });
  assert.equal(killed.outcome?.ending, "cancelled");
  assert.match(killed.outcome?.verdict?.sentence ?? "", /seen enough/);
  assert.equal((await output.next()).done, true);
  assert.equal((await run.readOutput({ cursor: 3 })).data, "wörd\nheard\n");
  await run.delete();
  await assert.rejects(run.info(), refused("run_not_found"));
});

test("a line and a port are waited for", async () => {
  const script = "read _; echo starting; sleep 0.2; echo ready on 8080; echo gone >&2; read _; exit 3";
  await using run = await client.start({ command: ["bash", "-c", script], stdin_open: true, wall_ms: 60_000 });
  const late = await run.waitForLine("ready", { wait_ms: 100 });
  assert.deepEqual([late.matched, late.line, late.status, late.ending], [false, null, "running", null]);
  await run.write("\n");
  const found = await run.waitForLine("ready on \\d+");
  assert.deepEqual([found.matched, found.line, found.cursor, found.next_cursor], [true, "ready on 8080", 9, 23]);
  assert.equal((await run.waitForLine("g.ne", { stream: "stderr", wait_ms: 20_000 })).line, "gone");
  assert.equal((await run.waitForLine("ready", { cursor: found.next_cursor, wait_ms: 50 })).matched, false);
  const abort = AbortSignal.timeout(100);
  await assert.rejects(run.waitForLine("never", { signal: abort }), { name: "TimeoutError" });
  await run.write("\n");
  const over = await run.waitForLine("never");
  assert.deepEqual([over.matched, over.status, over.ending, over.exit_code], [false, "ended", "exited", 3]);
  await assert.rejects(run.waitForLine("("), refused("bad_field", "pattern"));
  assert.equal((await run.waitForPort(80)).listening, false);
  const listens = "import socket, time; listener = socket.create_server(('127.0.0.1', 80)); time.sleep(60)";
  await using listening = await client.start({ command: ["python3", "-c", listens], wall_ms: 60_000 });
  assert.equal((await listening.waitForPort(80, { wait_ms: 30_000 })).listening, true);
});

test("leaving its scope ends a run", async () => {
  let id: string;
  {
    await using run = await client.start({ command: ["sleep", "60"] });
    id = run.id;
  }
  assert.equal((await client.attach(id).info()).outcome?.ending, "cancelled");
});

test("events tell all of it, in order, and can be taken up behind any of them", async () => {
  const run = await client.start({ command: "for i in 1 2 3; do echo out$i; echo err$i >&2; sleep 0.05; done", wall_ms: 60_000, warn_ms: 59_990 });
  const events = await collect(run.events());
  const text = (of: RunEvent[], name: string) => of.map((event) => (event.event === name ? (event.data as { data: string }).data : "")).join("");
  assert.deepEqual([events[0]?.event, events.at(-1)?.event], ["started", "ended"]);
  assert.deepEqual([text(events, "stdout"), text(events, "stderr")], ["out1\nout2\nout3\n", "err1\nerr2\nerr3\n"]);
  assert.equal(events.filter((event) => event.event === "warning" && event.data.kind === "wall").length, 1);
  for (const [at, { id }] of events.entries()) {
    const rest = await collect(run.events({ after: id }));
    for (const name of ["stdout", "stderr"]) {
      assert.equal(text([...events.slice(0, at + 1), ...rest], name), text(events, name), `behind ${id}`);
    }
  }
});

test("output that was dropped is said to be gone", async () => {
  const run = await client.start({ command: "head -c 3000000 /dev/zero | tr '\\0' a; echo end", output_bytes: 100_000 });
  await run.wait();
  const chunks = await collect(run.output());
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.bytes.length, 0);
  const dropped = chunks.reduce((sum, chunk) => sum + chunk.dropped, 0);
  assert.deepEqual([bytes, dropped, chunks.at(-1)?.text.endsWith("aend\n")], [100_000, 2_900_004, true]);
});

test("runs are listed, the host and the settings are told", async () => {
  const { runs, total } = await client.runs({ status: "ended", limit: 1 });
  assert(runs.length === 1 && total > 1);
  assert.match((await client.host()).tier ?? "", /^T[0-3]$/);
  assert("listen" in (await client.config()).server);
  assert.deepEqual(await client.health(), { status: "ok" });
});

test("a program is judged by cases, and an abort ends its runs", async () => {
  const cases = [{ stdin: "3", expected: "9" }, { stdin: "4", expected: "15" }];
  const judgement = await client.judge({ code: "print(int(input()) ** 2)", cases, wall_ms: 20_000 });
  assert.deepEqual(judgement.cases.map(({ verdict }) => verdict), ["accepted", "wrong_answer"]);
  assert.deepEqual([judgement.passed, judgement.score, judgement.cases[0]?.outcome?.stdout], [false, 0.5, "9\n"]);
  await assert.rejects(client.judge({ code: "x", cases: [] }), refused("bad_field"));
  const abort = new AbortController();
  const judging = client.judge({ code: "import time; time.sleep(987)", cases: [{ expected: "" }] }, { signal: abort.signal });
  await until(async () => (await client.runs({ status: "running" })).runs.length > 0);
  abort.abort();
  await assert.rejects(judging, { name: "AbortError" });
  await until(async () => (await client.runs({ status: "running" })).runs.length === 0);
});

test("no server and a wrong token are told apart", async () => {
  await using closed = await Serving.start("me a-secret-token-of-mine\n");
  const mine = new Client({ url: closed.url, token: "a-secret-token-of-mine" });
  assert.equal((await mine.run({ command: ["true"] })).ok, true);
  for (const wrong of [new Client({ url: closed.url }), new Client({ url: closed.url, token: "another" })]) {
    await assert.rejects(wrong.run({ command: ["true"] }), (error: unknown) => {
      assert(error instanceof UnauthorizedError && error instanceof SandtimerError);
      assert.deepEqual([error.code, error.status, error.retryable], ["unauthorized", 401, false]);
      return true;
    });
  }
  await closed.crash();
  await assert.rejects(mine.run({ command: ["true"] }), (error: unknown) => {
    assert(error instanceof UnreachableError && error instanceof SandtimerError);
    assert.deepEqual([error.code, error.status, error.retryable], ["unreachable", undefined, true]);
    assert.match(error.message, /ECONNREFUSED/);
    return true;
  });
  assert.throws(() => new Client({ url: "127.0.0.1:7880" }), refused("bad_url"));
});

test("a long run is waited for in pieces, and an abort in a later one cancels it", async () => {
  let waits = 0;
  // As the client asks, only sooner.
  const impatient: typeof fetch = (url, init) => {
    const sooner = (text: string) => text.replace(/(wait_ms"?[:=])50000/, (_, name: string) => `${name}${(waits += 1) && 150}`);
    return fetch(sooner(String(url)), { ...init, ...(typeof init?.body === "string" ? { body: sooner(init.body) } : {}) });
  };
  const patient = new Client({ url: serving.url, fetch: impatient });
  assert.equal((await patient.run({ command: "sleep 0.7; echo done" })).stdout, "done\n");
  assert(waits > 2, String(waits));
  const abort = new AbortController();
  const running = patient.run({ command: ["sleep", "986"] }, { signal: abort.signal });
  const before = waits;
  await until(() => Promise.resolve(waits > before + 2));
  abort.abort();
  await assert.rejects(running, { name: "AbortError" });
  const mine = (await client.runs()).runs.find((run) => run.command[1] === "986");
  assert.equal((await client.attach(mine?.run_id ?? "").wait()).verdict?.sentence.includes("its client aborted it"), true);
});
