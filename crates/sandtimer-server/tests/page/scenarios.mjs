// What a person does on the page, and what it has to show then.
import assert from "node:assert/strict";
import net from "node:net";
import { frameScenarios } from "./frames.mjs";
import { sectionScenarios } from "./sections.mjs";

const TOKEN = process.env.SANDTIMER_TOKEN;
const SECONDS = 20;

async function ask(url, path, body) {
  const answer = await fetch(url + path, {
    method: body ? "POST" : "GET",
    headers: TOKEN ? { Authorization: `Bearer ${TOKEN}` } : {},
    body: body && JSON.stringify(body),
  });
  assert.ok(answer.ok, `${path}: ${answer.status}`);
  return answer.json();
}

const start = async (url, script, more = {}) =>
  (await ask(url, "/v1/runs", { command: ["sh", "-c", script], wait_ms: 0, detach: true, ...more })).run_id;

/** Waits until `look` gives something true. */
async function until(what, look) {
  const end = Date.now() + SECONDS * 1000;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `it never came: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

const row = (page, list, id) => page.locator(`#${list} li[data-id="${id}"] button`);
const text = (page, id) => page.locator(`#${id}`).textContent();
/** Presses an action's button, and yes. */
async function confirm(page, id) {
  await page.locator(`#${id}`).click();
  await page.locator("#yes").click();
}

const COUNTING = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done";

/** A way to the server that can be cut. */
async function forwarder(url) {
  const { hostname, port } = new URL(url);
  const open = new Set();
  const server = net.createServer((near) => {
    const far = net.connect(port, hostname);
    for (const [one, other] of [[near, far], [far, near]]) {
      open.add(one);
      one.on("error", () => {}).on("close", () => { open.delete(one); other.destroy(); }).pipe(other);
    }
  });
  const listen = (at) => new Promise((done) => server.listen(at, "127.0.0.1", done));
  await listen(0);
  const { port: own } = server.address();
  return {
    url: `http://127.0.0.1:${own}`,
    cut: () => new Promise((done) => { server.close(done); for (const socket of open) socket.destroy(); }),
    mend: () => listen(own),
  };
}

export const scenarios = {
  ...sectionScenarios({ ask, start, until, row, text, confirm }),
  ...frameScenarios({ ask, text, until }),

  async a_run_is_watched_extended_and_killed(page, url) {
    await page.goto(url);
    await page.locator("#nothing").waitFor();
    assert.match(await text(page, "example"), /curl -s http:\/\/127\.0\.0\.1:\d+\/v1\/runs -d/);
    const id = await start(url, `${COUNTING} & wait`, { wall_ms: 600_000 });
    await row(page, "running", id).waitFor();
    assert.ok(await row(page, "running", id).locator("progress.wall").isVisible());
    // By keyboard alone.
    await row(page, "running", id).focus();
    await page.keyboard.press("Enter");
    await until("output", async () => (await text(page, "output")).includes("line 3\n"));
    const before = (await text(page, "output")).length;
    await until("more output", async () => (await text(page, "output")).length > before);
    assert.ok(await page.locator("#bar").isVisible());
    assert.equal(await row(page, "running", id).getAttribute("aria-pressed"), "true");

    const left = async () => (await ask(url, "/v1/runs")).runs.find((run) => run.run_id === id).wall_left_ms;
    assert.ok((await left()) <= 600_000);
    await page.locator("#seconds").fill("3000");
    await page.locator("#extend").click();
    await until("the answer", async () => /^\d+ min \d\d s left now\.$/.test(await text(page, "answer")));
    assert.ok((await left()) > 3_000_000);

    // Nothing is done without a yes.
    await page.locator("#kill").click();
    await page.keyboard.press("Escape");
    assert.equal((await ask(url, `/v1/runs/${id}`)).status, "running");
    await confirm(page, "kill");
    await page.locator("#verdict").waitFor();
    const { outcome } = await ask(url, `/v1/runs/${id}`);
    assert.equal(outcome.ending, "cancelled");
    assert.ok(outcome.verdict.sentence.includes("killed on the page"), outcome.verdict.sentence);
    assert.equal(await text(page, "verdict"), outcome.verdict.sentence);
    assert.match(await text(page, "usage"), /Still alive0Proof/);
    assert.match(await text(page, "time"), /In all.*Computing/);
    await page.locator("#tab-ended").click();
    await row(page, "ended", id).waitFor();
    assert.ok((await row(page, "ended", id).textContent()).includes(outcome.verdict.sentence));
    assert.equal(await page.locator("#kill").count(), 0);
    await until("its end is told", async () => (await text(page, "told")).includes(`Run ${id} has ended: cancelled`));
    assert.equal(await text(page, "output"), outcome.stdout);
  },

  async progress_and_colours_are_folded(page, url) {
    const script = "for i in 1 2 3; do printf '\\r%d0%%' $i; sleep 0.2; done; printf '\\r100%%\\n\\033[1;31mred\\033[0m\\n'; sleep 60";
    const id = await start(url, script);
    await page.goto(url);
    await row(page, "running", id).click();
    await until("all of it", async () => (await text(page, "output")) === "100%\nred\n");
    assert.equal(await page.locator("#output .f1.tb").textContent(), "red");
    const { data } = await ask(url, `/v1/runs/${id}/output`);
    assert.ok(data.startsWith("\r10%\r20%") && data.includes("\x1b[1;31m"), JSON.stringify(data));
  },

  async several_bars_are_folded(page, url) {
    const bars = "printf 'before\\n'; for i in 1 5 9; do printf \"\\ra: $i%%\\n\\rb: $i%%\\033[1A\"; sleep 0.2; done; printf '\\n\\n'";
    const docker = "printf 'one: Pulling\\ntwo: Pulling\\n'; sleep 0.2; printf '\\033[2A\\033[2K\\rone: Done\\r\\033[2B'; sleep 0.2; printf '\\033[1A\\033[2K\\rtwo: Done\\r\\033[1B'";
    const erased = "printf 'x\\ny\\nz'; sleep 0.2; printf '\\033[2F\\033[Jlast\\n'; for i in $(seq 200); do echo line $i; done; sleep 60";
    const id = await start(url, `${bars}; ${docker}; ${erased}`);
    await page.goto(url);
    await row(page, "running", id).click();
    const lines = Array.from({ length: 200 }, (_, index) => `line ${index + 1}\n`).join("");
    const wanted = `before\na: 9%\nb: 9%\none: Done\ntwo: Done\nlast\n${lines}`;
    await until("all of it", async () => (await text(page, "output")) === wanted);
    const { data } = await ask(url, `/v1/runs/${id}/output`);
    assert.ok(data.startsWith("before\n\ra: 1%\n\rb: 1%\x1b[1A"), JSON.stringify(data.slice(0, 60)));
  },

  async what_runs_print_stays_text(page, url) {
    const evil = "</pre><script>window.owned = 1</script><img src=x onerror='window.owned = 1'>";
    const script = 'echo "$0"; echo "$0" >&2; sleep 60';
    const { run_id: id } = await ask(url, "/v1/runs", { command: ["sh", "-c", script, evil], wait_ms: 0, detach: true });
    await page.goto(url);
    await row(page, "running", id).click();
    await until("both", async () => (await text(page, "output")) === `${evil}\n${evil}\n`);
    assert.ok((await text(page, "what")).includes(evil));
    await ask(url, `/v1/runs/${id}/kill`, { reason: evil });
    await page.locator("#verdict").waitFor();
    await page.locator("#tab-ended").click();
    await row(page, "ended", id).waitFor();
    assert.ok((await text(page, "verdict")).includes(evil));
    assert.deepEqual(await page.evaluate(() => [window.owned, document.scripts.length, document.images.length]), [undefined, 1, 0]);
    // The wall behind it: text cannot be made markup.
    const refused = await page.evaluate(() => {
      try {
        document.body.innerHTML = "<b>x</b>";
        return "taken";
      } catch (error) {
        return error.name;
      }
    });
    assert.equal(refused, "TypeError");
    return ["TrustedHTML"];
  },

  async contexts_show_what_they_run_and_who_waits(page, url) {
    const { context_id: id } = await ask(url, "/v1/contexts", {});
    const { context_id: shell } = await ask(url, "/v1/sessions", {});
    const cell = (code) => ask(url, `/v1/contexts/${id}/execute`, { code, wait_ms: 0, detach: true, wall_ms: 300_000 });
    const { run_id: run } = await cell("import time\nprint('in the cell', flush=True)\ntime.sleep(100)");
    assert.equal((await cell("1")).status, "queued");
    await page.goto(`${url}/#contexts`);
    const shown = row(page, "contexts", id);
    await until("who waits", async () => (await shown.textContent()).includes("1 cell waits for a turn"));
    assert.ok((await shown.textContent()).includes(`runs ${run}`));
    assert.ok(await shown.locator("progress.wall").isVisible());
    assert.ok((await row(page, "contexts", shell).textContent()).includes("idle"));
    await page.locator('[data-kind="sessions"]').click();
    await until("sessions alone", async () => (await row(page, "contexts", id).count()) === 0);
    assert.equal(await row(page, "contexts", shell).count(), 1);
    await page.locator('[data-kind="all"]').click();
    await shown.click();
    await page.locator("#show-run").click();
    await until("its output", async () => (await text(page, "output")).includes("in the cell"));
    await confirm(page, "kill");
    await page.locator("#verdict").waitFor();
    await until("the next one had its turn", async () => (await shown.textContent()).includes("idle"));
    await shown.click();
    await confirm(page, "close");
    await until("it is closed", async () => (await row(page, "contexts", id).count()) === 0);
    assert.match(await text(page, "state"), /It has ended/);
  },

  async output_goes_on_after_the_server_was_gone(page, url) {
    const way = await forwarder(url);
    const id = await start(url, COUNTING);
    await page.goto(way.url);
    await row(page, "running", id).click();
    await until("output", async () => (await text(page, "output")).includes("line 5\n"));
    await way.cut();
    await until("that it is gone", async () => /does not answer\. Trying again in \d+ s/.test(await text(page, "connection")));
    const lines = (await text(page, "output")).split("\n").length;
    await way.mend();
    await until("that it is back", async () => (await text(page, "connection")) === "Connected.");
    await until("more", async () => (await text(page, "output")).split("\n").length > lines + 10);
    const all = (await text(page, "output")).trimEnd().split("\n");
    assert.deepEqual(all, all.map((_, index) => `line ${index + 1}`));
    await way.cut();
  },

  async only_the_end_of_long_output_is_fetched(page, url) {
    const id = await start(url, "seq 200000");
    await page.goto(`${url}/#ended`);
    await row(page, "ended", id).click();
    await until("all", async () => (await text(page, "following")) === "complete");
    const shown = await text(page, "output");
    assert.ok(shown.startsWith("[Earlier output is not shown.]\n") && shown.endsWith("\n199999\n200000\n"));
    assert.ok(shown.length < 70_000, `${shown.length}`);
  },

  async nothing_is_asked_while_nobody_looks(page, url) {
    let asked = 0;
    page.on("request", () => { asked += 1; });
    await page.goto(url);
    await until("it asks", () => asked > 6);
    const look = (hidden) => page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
    await look(true);
    const before = asked;
    await page.waitForTimeout(3000);
    assert.equal(asked, before);
    await look(false);
    await until("it asks again", () => asked > before + 3);
  },

  async a_token_is_asked_for_once(page, url) {
    const id = await start(url, COUNTING);
    await page.goto(url);
    await page.locator("#secret").waitFor();
    assert.ok(await page.locator("#lists").isHidden());
    await page.locator("#secret").fill("not-a-token-of-anybody");
    await page.keyboard.press("Enter");
    await until("it is refused", async () => /does not know this token/.test(await text(page, "refused")));
    await page.locator("#secret").fill(TOKEN);
    await page.keyboard.press("Enter");
    await row(page, "running", id).click();
    await until("its events", async () => (await text(page, "output")).includes("line 3\n"));
    await page.reload();
    await row(page, "running", id).waitFor();
    assert.ok(await page.locator("#entry").isHidden());
    assert.equal(await page.evaluate(() => localStorage.length + document.cookie.length), 0);
    assert.ok(!(await page.content()).includes(TOKEN) && !page.url().includes(TOKEN));
  },
};
