// How long frames take while lists are scrolled and filtered, out of a trace of Chromium. It measures, so it needs a machine that does
// nothing else, and is not a test of its own: `SANDTIMER_URL=http://127.0.0.1:PORT node drive.mjs frames_stay_short` against a new server.
import assert from "node:assert/strict";

const RUNS = 1000;
const JOBS = 200;
const CLIENTS = 3;
const MAX_FRAME_MS = 50;
const COMMANDS = [["true"], ["sh", "-c", "echo hello; exit 3"], ["sh", "-c", "printf '\\033[32mgreen\\033[0m\\n'; seq 30"], ["sleep", "0.01"], ["sh", "-c", "kill -9 $$"]];

async function fill(ask, url) {
  let begun = 0;
  const client = async () => {
    for (let number = begun++; number < RUNS; number = begun++) await ask(url, "/v1/runs", { command: COMMANDS[number % COMMANDS.length] });
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  const jobs = Array.from({ length: JOBS }, (_, number) => ({
    name: `job-${number}`, queue: ["default", "mail", "train"][number % 3], command: ["sh", "-c", `echo ${number}; exit ${number % 4 ? 0 : 1}`],
  }));
  await ask(url, "/v1/jobs", jobs);
}

/** The longest tasks of the page's main thread while `work` is done, in milliseconds. */
async function longest(page, work) {
  const session = await page.context().newCDPSession(page);
  const collected = [];
  session.on("Tracing.dataCollected", ({ value }) => collected.push(...value));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "devtools.timeline"] } });
  await work();
  const ended = new Promise((done) => session.once("Tracing.tracingComplete", done));
  await session.send("Tracing.end");
  await ended;
  await session.detach();
  const thread = ({ pid, tid }) => `${pid}/${tid}`;
  const main = new Set(collected.filter((event) => event.name === "thread_name" && event.args?.name === "CrRendererMain").map(thread));
  const tasks = collected.filter((event) => event.ph === "X" && /RunTask$/.test(event.name) && main.has(thread(event)));
  return tasks.map(({ dur, tdur }) => ({ ms: dur / 1000, computing: (tdur ?? dur) / 1000 })).sort((one, other) => other.ms - one.ms);
}

export const frameScenarios = ({ ask, text, until }) => ({
  async frames_stay_short(page, url) {
    await fill(ask, url);
    await page.goto(url);
    const scroll = async (list) => {
      await page.locator(`#${list} button`).first().hover();
      for (let turn = 0; turn < 60; turn += 1) { await page.mouse.wheel(0, 900); await page.waitForTimeout(30); }
      for (let turn = 0; turn < 10; turn += 1) { await page.mouse.wheel(0, -9000); await page.waitForTimeout(30); }
    };
    const filter = async () => {
      for (const words of ["sleep", "code 3", "no such thing", "job-1", "failed"]) {
        await page.locator("#search").fill("");
        await page.locator("#search").pressSequentially(words, { delay: 40 });
      }
      await page.locator("#search").fill("");
    };
    const sections = async () => {
      await page.locator("#tab-ended").focus();
      for (const key of "123412341234") { await page.keyboard.press(key); await page.waitForTimeout(250); }
    };
    const all = [];
    const measure = async (name, work) => {
      const tasks = await longest(page, work);
      assert.ok(tasks.length > 100, `${name}: the trace has ${tasks.length} tasks`);
      process.stdout.write(`${name}: ${tasks.length} tasks, the longest ${tasks.slice(0, 3).map(({ ms, computing }) => `${ms.toFixed(1)} ms (${computing.toFixed(1)} of them computing)`).join(", ")}\n`);
      all.push(tasks[0].ms);
    };
    await page.locator("#tab-ended").click();
    await until("all of them", async () => Number((await text(page, "ended-count")).replace(",", "")) >= RUNS);
    await measure("ended, scrolled", () => scroll("ended"));
    await measure("ended, filtered", filter);
    await page.locator("#tab-queue").click();
    await page.locator("#jobs button").first().waitFor();
    await measure("jobs, scrolled", () => scroll("jobs"));
    await measure("jobs, filtered", filter);
    await measure("sections", sections);
    assert.ok(Math.max(...all) < MAX_FRAME_MS, `${Math.max(...all)} ms`);
  },
});
