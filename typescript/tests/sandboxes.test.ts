/** Sandboxes of a real server. */

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

test("runs, contexts and sessions share its files, and it is deleted at the end", async () => {
  let id: string;
  {
    await using box = await client.sandbox({ template: "host" });
    id = box.id;
    const outcome = await box.exec({ command: "echo one >~/file; id -un", wall_ms: 20_000 });
    assert.deepEqual([outcome.ending, outcome.stdout], ["exited", "user\n"]);
    await using session = await box.session();
    assert.equal((await session.execute("cat ~/file; echo two >>~/file")).stdout, "one\n");
    await using context = await box.context();
    assert.equal((await context.execute("open('/home/user/file').read()")).value, "one\ntwo\n");
    assert.equal(await box.files.readText("/home/user/file"), "one\ntwo\n");
    await box.files.write("script", "echo written", { mode: "0755" });
    assert.equal((await box.exec({ command: "sh ./script", wall_ms: 20_000 })).stdout, "written\n");
    const run = await box.start({ command: "sleep 60", wall_ms: 60_000 });
    // A run that has ended is in it for a moment after its outcome.
    await until(async () => (await box.info()).runs === 3);
    await box.delete();
    assert.equal((await run.wait()).ending, "cancelled");
  }
  await assert.rejects(client.attachSandbox(id).info(), { code: "sandbox_not_found", status: 404 });
  assert(!(await client.sandboxes()).some((sandbox) => sandbox.sandbox_id === id));
});

test("a limit of a run ends the run and not the sandbox, and an abort cancels the run", async () => {
  await using box = await client.sandbox();
  const slow = await box.exec({ command: "echo kept >part; sleep 60", wall_ms: 300 });
  assert.deepEqual([slow.ending, slow.tree.survivors], ["timeout", 0]);
  const abort = new AbortController();
  const running = box.exec({ command: "sleep 60", wall_ms: 60_000 }, { signal: abort.signal });
  await until(async () => (await box.info()).runs === 1);
  abort.abort();
  await assert.rejects(running, { name: "AbortError" });
  await until(async () => (await box.info()).runs === 0);
  assert.equal((await box.exec({ command: "cat part", wall_ms: 20_000 })).stdout, "kept\n");
});

test("snapshots are templates, forks go their own ways, and changes are listed and exported", async () => {
  await using box = await client.sandbox();
  await box.exec({ command: "echo 42 >answer", wall_ms: 20_000 });
  const changed = await box.diff();
  assert.deepEqual(changed.changes.map(({ path, change }) => [path, change]), [["/workspace/answer", "added"]]);
  const template = await box.snapshot("ready");
  assert.deepEqual([template.name, template.sandbox_id], ["ready", box.id]);
  await assert.rejects(box.snapshot("ready"), { code: "template_exists" });
  assert((await client.templates()).some(({ name }) => name === "ready"));
  const [one, other] = await box.fork(2);
  assert(one !== undefined && other !== undefined);
  await one.exec({ command: "echo 43 >answer", wall_ms: 20_000 });
  assert.deepEqual([await one.files.readText("answer"), await other.files.readText("answer")], ["43\n", "42\n"]);
  const archive = Buffer.concat(await collect(other.export({ changes: true })));
  assert(archive.includes("workspace/answer"));
  const imported = await client.importTemplate("imported", archive);
  assert.deepEqual([imported.name, imported.kind], ["imported", "import"]);
  {
    await using copy = await client.sandbox({ template: "ready" });
    assert.equal(await copy.files.readText("answer"), "42\n");
  }
  await Promise.all([one.delete(), other.delete(), client.deleteTemplate("ready"), client.deleteTemplate("imported")]);
  await assert.rejects(client.sandbox({ template: "ready" }), { code: "template_not_found" });
});

test("a paused sandbox stands still until it is resumed", async () => {
  await using box = await client.sandbox({ wall_ms: "1h", idle_ms: "10m", memory_bytes: "128M", processes: 40 });
  const { memory_bytes, processes, processes_used } = await box.info();
  assert.deepEqual([memory_bytes, processes, processes_used], [128 * 2 ** 20, 40, 0]);
  const run = await box.start({ command: "while :; do echo x; sleep 0.01; done", wall_ms: 60_000 });
  await run.waitForLine("x");
  const paused = await box.pause();
  assert.deepEqual([paused.paused, paused.wall_ms, paused.idle_ms], [true, 3_600_000, 600_000]);
  await assert.rejects(box.exec({ command: "true" }), { code: "sandbox_paused", status: 409 });
  await assert.rejects(box.files.write("file", "text"), { code: "sandbox_paused" });
  assert.equal((await box.files.stat("/workspace")).type, "directory");
  assert.equal((await client.runs()).runs.find(({ run_id }) => run_id === run.id)?.paused, true);
  assert.equal((await box.resume()).paused, false);
  const extended = await box.extend(60_000);
  assert.equal(extended.wall_ms, 3_660_000);
  assert.equal((await box.exec({ command: "echo there", wall_ms: 20_000 })).stdout, "there\n");
  await assert.rejects(box.resume(), { code: "wrong_state", status: 409 });
  await assert.rejects(box.extend(0), { code: "bad_field", status: 400 });
  await assert.rejects(client.sandbox({ wall_ms: -1 }), { code: "bad_limit", status: 400 });
});

test("its network is its allow-list, and its ports are reached by a link", async () => {
  await using box = await client.sandbox({ network: ["a.example"] });
  assert.deepEqual((await box.info()).network, ["a.example"]);
  assert.deepEqual([await box.ports(), await box.waitForPort(8000, { wait_ms: 100 })], [[], false]);
  await box.files.write("file", "served");
  await box.start({ command: ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"], wall_ms: 60_000 });
  assert.equal(await box.waitForPort(8000, { wait_ms: 20_000 }), true);
  assert.deepEqual(await box.ports(), [{ port: 8000, addresses: ["127.0.0.1"] }]);
  const { path, port, url } = await box.expose(8000, { ttl_ms: 60_000 });
  assert.equal(port, 8000);
  assert.ok(url.startsWith(`http://8000-${box.id}.localhost:`), url);
  const answer = await fetch(serving.url + path.replace("/?", "/file?"));
  assert.deepEqual([answer.status, await answer.text()], [200, "served"]);
  await assert.rejects(box.expose(65_536), { code: "bad_field" });
});

test("a sandbox that ended at a limit says so", async () => {
  await using box = await client.sandbox({ wall_ms: 500 });
  const outcome = await box.exec({ command: "sleep 60", wall_ms: 60_000 });
  assert.equal(outcome.ending, "timeout");
  assert.match(outcome.verdict?.scope ?? "", new RegExp(`sandbox-${box.id}`));
  await assert.rejects(box.exec({ command: "true" }), { code: "sandbox_ended", status: 410 });
  await until(async () => !(await client.sandboxes()).some(({ sandbox_id }) => sandbox_id === box.id));
  await assert.rejects(box.info(), (error: SandtimerError) => error.code === "sandbox_ended" && error.details["limit"] === "wall");
});
