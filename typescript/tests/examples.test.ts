/** The examples, run as they are written. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Serving } from "./support.js";

const DIRECTORY = new URL("../examples/", import.meta.url);
/** What each says, in the order of its lines. */
const SAID: Record<string, RegExp> = {
  "run.js": /^timeout "thinking\\n" survivors: 0\nStopped by the run's wall limit of 500 ms/,
  "follow.js": /^stdout "who\? "\n(stdout .*\n)+exited 0\n$/,
  "notebook.js": /^timeout rolled_back\n6 \[.*'6'.*\]\n\/tmp\nkept\n\nbad_limit - /,
  "cancel.js": /^gave up: TimeoutError\ncancelled\n$/,
};

let serving: Serving;

before(async () => {
  serving = await Serving.start();
});
after(() => serving[Symbol.asyncDispose]());

test("every example is known here", () => {
  assert.deepEqual(readdirSync(DIRECTORY).sort(), Object.keys(SAID).sort());
});

for (const [name, said] of Object.entries(SAID)) {
  test(`${name} does what it says`, async () => {
    const env = { ...process.env, SANDTIMER_SERVER: serving.url };
    const { stdout } = await promisify(execFile)(process.execPath, [new URL(name, DIRECTORY).pathname], { env, timeout: 60_000 });
    assert.match(stdout, said);
  });
}
