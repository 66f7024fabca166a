/** The TypeScript and JavaScript blocks of the pages, checked by the compiler and run as they are written. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import ts from "typescript";
import { Serving } from "./support.js";

const ROOT = new URL("../../../", import.meta.url);
const PAGES = ["README.md", "typescript/README.md", "docs/guides/typescript.md"];
/** What a reader of a block already has. */
const CLIENT = 'import { Client } from "sandtimer";\n\nconst client = new Client();\n';

interface Block {
  readonly name: string;
  readonly file: string;
  readonly code: string;
}

/** The blocks whose title has no reason why they are not tested. Each is a file below `directory`. */
function blocks(page: string, text: string, directory: URL): Block[] {
  const found: Block[] = [];
  for (const match of text.matchAll(/^```(?:ts|js)( [^\n`]*)?\n(.*?)^```$/gms)) {
    const [, title = "", code = ""] = match;
    if (title.includes("not run in tests: ")) continue;
    const line = text.slice(0, match.index).split("\n").length;
    const file = new URL(`${page.replace(/\W+/g, "-")}-${line}.ts`, directory).pathname;
    found.push({ name: `${page}:${line}`, file, code: code.includes("new Client(") ? code : CLIENT + code });
  }
  return found;
}

/** What the comments after `console.log(…)` show, in the order of the lines. */
function shown(code: string): string[] {
  return [...code.matchAll(/console\.log\(.*\);\s+\/\/ (.+)$/gm)].map(([, text]) => text ?? "");
}

/** What `printed` lacks of the lines that are `wanted`, in their order. */
function missing(wanted: string[], printed: string): string[] {
  const left = printed.split("\n");
  return wanted.filter((line) => {
    const index = left.indexOf(line);
    left.splice(0, index + 1);
    return index < 0;
  });
}

/** Writes the blocks into files and compiles them; returns what the compiler reports. */
function compile(found: Block[]): string[] {
  for (const { file, code } of found) writeFileSync(file, `${code}\nexport {};\n`);
  const read = ts.readConfigFile(new URL("typescript/tsconfig.json", ROOT).pathname, (path) => ts.sys.readFile(path));
  const { options } = ts.convertCompilerOptionsFromJson(read.config.compilerOptions, new URL("typescript", ROOT).pathname);
  delete options.outDir;
  const program = ts.createProgram(found.map(({ file }) => file), { ...options, skipLibCheck: true });
  program.emit();
  return ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}

// Within the package, so that its own name leads to it.
const DIRECTORY = new URL("typescript/build/pages/", ROOT);
const BLOCKS = PAGES.flatMap((page) => blocks(page, readFileSync(new URL(page, ROOT), "utf8"), DIRECTORY));

let serving: Serving;

before(async () => {
  mkdirSync(DIRECTORY, { recursive: true });
  assert.deepEqual(compile(BLOCKS), []);
  serving = await Serving.start();
});
after(() => serving[Symbol.asyncDispose]());

test("every page has blocks", () => {
  assert.deepEqual(PAGES.filter((page) => !BLOCKS.some(({ name }) => name.startsWith(`${page}:`))), []);
});

for (const { name, file, code } of BLOCKS) {
  test(`${name} prints what it shows`, async () => {
    const env = { ...process.env, SANDTIMER_SERVER: serving.url };
    const { stdout } = await promisify(execFile)(process.execPath, [file.replace(/\.ts$/, ".js")], { env, timeout: 60_000 });
    assert.deepEqual(missing(shown(code), stdout), [], stdout);
  });
}

test("a wrong type and another output than shown are found", () => {
  const text = "```ts\nconsole.log(1 + 1);   // 3\nconst text: string = 1;\n```\n```js title=\"not run in tests: planted\"\nthrow 1;\n```\n";
  const found = blocks("planted.md", text, DIRECTORY);
  assert.deepEqual(found.map(({ name }) => name), ["planted.md:1"]);
  assert.match(compile(found).join("\n"), /planted-md-1\.ts: Type 'number' is not assignable to type 'string'/);
  assert.deepEqual(missing(shown(text), "2\n"), ["3"]);
});
