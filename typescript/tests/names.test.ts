/** every-name.ts uses every public name of the package, and each has a doc comment. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import ts from "typescript";

// From build/tests, where this runs.
const ROOT = new URL("../../", import.meta.url);

/** The names that the package exports, and the public members of its classes, with the text of their doc comments. */
function publicNames(index = new URL("dist/index.d.ts", ROOT).pathname): Map<string, string> {
  const settings = { module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext, target: ts.ScriptTarget.ES2022 };
  const program = ts.createProgram([index], { ...settings, lib: ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts"], types: [] });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(index);
  const module = source && checker.getSymbolAtLocation(source);
  assert(module !== undefined);
  const names = new Map<string, string>();
  const text = (symbol: ts.Symbol): string => ts.displayPartsToString(symbol.getDocumentationComment(checker));
  for (const exported of checker.getExportsOfModule(module)) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    names.set(exported.name, text(symbol));
    if (!(symbol.flags & ts.SymbolFlags.Class)) continue;
    for (const member of symbol.members?.values() ?? []) {
      const modifiers = member.valueDeclaration === undefined ? 0 : ts.getCombinedModifierFlags(member.valueDeclaration);
      const isPublic = (modifiers & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) === 0;
      if (isPublic && /^[a-zA-Z]/.test(member.name)) names.set(`${exported.name}.${member.name}`, text(member));
    }
  }
  return names;
}

const undocumented = (names: Map<string, string>): string[] => [...names].filter(([, text]) => text === "").map(([name]) => name);

test("the sample uses every public name", () => {
  const names = [...publicNames().keys()];
  assert(names.length > 100 && names.includes("Run.waitForLine") && names.includes("Outcome"), names.join(" "));
  const used = new Set(readFileSync(new URL("tests/every-name.ts", ROOT), "utf8").match(/[A-Za-z_]\w*/g));
  assert.deepEqual(names.filter((name) => !used.has(name.replace(/.*\./, ""))), []);
});

test("every public name has a doc comment", () => {
  assert.deepEqual(undocumented(publicNames()), []);
});

test("a name without a doc comment is found", () => {
  const directory = mkdtempSync(join(tmpdir(), "sandtimer-names-"));
  try {
    const index = join(directory, "index.d.ts");
    writeFileSync(index, "/** It has one. */\nexport declare class Planted {\n  /** It has one. */\n  one(): void;\n  none(): void;\n}\nexport type Bare = string;\n");
    assert.deepEqual(undocumented(publicNames(index)), ["Planted.none", "Bare"]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
