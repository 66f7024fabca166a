// Opens the server's page in a browser and runs one scenario on it: `node drive.mjs SCENARIO`.
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { scenarios } from "./scenarios.mjs";

const { chromium } = createRequire(join(process.env.SANDTIMER_TEST_NPM, "x.js"))("playwright-core");
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

const [name] = process.argv.slice(2);
const profile = await mkdtemp(join(tmpdir(), "sandtimer-page-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: "/usr/bin/chromium", args: FLAGS, headless: true, viewport: { width: 1280, height: 900 },
});
browser.setDefaultTimeout(20_000);
const [page] = browser.pages();
const wrong = [];
page.on("pageerror", (error) => wrong.push(`${error.stack ?? error}`));
// Answers that are refusals, and servers that are gone, are told to the console by the browser itself.
page.on("console", (line) => {
  if (line.type() === "error" && !line.text().startsWith("Failed to load resource")) wrong.push(line.text());
});
let failed = 0;
try {
  // What the browser has to complain about, and nothing else.
  const expected = (await scenarios[name](page, process.env.SANDTIMER_URL)) ?? [];
  const fits = wrong.length === expected.length && expected.every((part, index) => wrong[index].includes(part));
  if (!fits) throw new Error(`the page says: ${wrong.join("\n")}`);
  process.stdout.write(`passed: ${name}\n`);
} catch (error) {
  process.stderr.write(`${error.stack ?? error}\n${wrong.join("\n")}\n`);
  failed = 1;
}
await browser.close();
await rm(profile, { recursive: true, force: true });
process.exit(failed);
