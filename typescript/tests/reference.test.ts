/** spec/typescript.md, the reference of the client, is what TypeDoc makes of the sources now. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

// From build/tests, where this runs.
const ROOT = new URL("../../", import.meta.url).pathname;

test("the reference is up to date", async () => {
  const directory = mkdtempSync(join(tmpdir(), "sandtimer-reference-"));
  try {
    const typedoc = join(ROOT, "node_modules/typedoc/bin/typedoc");
    await promisify(execFile)(process.execPath, [typedoc, "--logLevel", "Warn", "--out", directory], { cwd: ROOT });
    const [made, committed] = [join(directory, "typescript.md"), join(ROOT, "../spec/typescript.md")].map((path) => readFileSync(path, "utf8"));
    assert.equal(made === committed, true, "spec/typescript.md is out of date: `npm run reference`, and commit it");
  } finally {
    rmSync(directory, { recursive: true });
  }
});
