/** Workspaces of a real server, and their files. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Client } from "sandtimer";
import { Serving, collect } from "./support.js";

let serving: Serving;
let client: Client;

before(async () => {
  serving = await Serving.start();
  client = serving.client();
});
after(() => serving[Symbol.asyncDispose]());

test("files outlive the runs that work on them", async () => {
  const workspace = await client.workspace();
  const { files } = workspace;
  await files.write("in/ä b.txt", "grüße\n", { parents: true, mode: "0640" });
  const outcome = await client.run({ command: "tr a-z A-Z < 'in/ä b.txt' > out; cat out", workspace: workspace.id });
  assert.deepEqual([outcome.ok, await files.readText("out")], [true, outcome.stdout]);
  await files.append("out", new Uint8Array([0xff, 0]));
  assert.deepEqual((await files.read("out")).slice(-2), new Uint8Array([0xff, 0]));
  assert.deepEqual(await files.read("out", { offset: 1, length: 1 }), new TextEncoder().encode("R"));
  assert.deepEqual((await collect(files.list(".", { recursive: true }))).map(({ path, type }) => [path, type]), [
    ["in", "directory"],
    ["in/ä b.txt", "file"],
    ["out", "file"],
  ]);
  await assert.rejects(files.write("out", "x", { create_only: true }), { code: "file_exists" });
  await files.mkdir("a/b", { parents: true });
  assert.equal((await files.move("out", "a/b/moved")).path, "a/b/moved");
  assert.equal((await files.stat("a/b/moved")).type, "file");
  await files.delete("a", { recursive: true });
  await assert.rejects(files.read("a/b/moved"), { code: "file_not_found" });
  await assert.rejects(files.read("../x"), { name: "SandtimerError" });
  assert((await client.workspaces()).some(({ workspace_id }) => workspace_id === workspace.id));
  assert((await client.attachWorkspace(workspace.id).info()).files > 0);
  await workspace.delete();
  await assert.rejects(workspace.info(), { code: "workspace_not_found" });
});

test("large files are streamed both ways", async () => {
  const { files } = await client.workspace();
  const piece = new Uint8Array(1 << 20).map((_, at) => at * 7);
  let left = 12;
  const content = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (left-- > 0) controller.enqueue(piece);
      else controller.close();
    },
  });
  assert.equal((await files.write("large", content)).size, 12 << 20);
  assert.deepEqual(await files.read("large"), new Uint8Array(Buffer.concat(Array.from({ length: 12 }, () => piece))));
  for await (const some of files.stream("large")) {
    assert(some.length > 0);
    break;
  }
});

test("directories come and go as archives, and trees are watched", async () => {
  const { files } = await client.workspace();
  await files.write("in/deep/run.sh", "#!/bin/sh\n", { parents: true, mode: "0755" });
  const pieces = await collect(files.archive("in"));
  const archive = new Uint8Array(Buffer.concat(pieces));
  const changes = files.watch(".", { recursive: true });
  assert.deepEqual((await changes.next()).value?.directories, 3);
  assert.equal((await files.extract(archive, "out", { parents: true })).members, 2);
  // Found by the walk of its new directory, or moved to its name once that has a watch.
  for await (const { event, path } of changes) if (path === "out/deep/run.sh" && (event === "created" || event === "moved_to")) break;
  assert.deepEqual([await files.readText("out/deep/run.sh"), (await files.stat("out/deep/run.sh")).mode], ["#!/bin/sh\n", "0755"]);
  await assert.rejects(files.extract("no archive"), { code: "bad_archive" });
});

test("a context's files are at hand, and their changes are told", async () => {
  await using context = await client.context();
  const changes = context.files.watch();
  assert.equal((await changes.next()).value?.event, "ready");
  const executed = context.execute("open('made', 'w').write('by the cell'); None");
  assert.deepEqual([(await changes.next()).value].map((change) => [change?.event, change?.path]), [["created", "made"]]);
  await changes.return();
  await executed;
  assert.equal(await context.files.readText("made"), "by the cell");
  await using session = await client.session();
  await session.files.write("made", "outside");
  assert.equal((await session.execute("cat made")).stdout, "outside");
});
