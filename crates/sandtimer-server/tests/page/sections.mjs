// What the sections of the page show and do, with the parts of scenarios.mjs that both files need.
import assert from "node:assert/strict";

export const sectionScenarios = ({ ask, start, until, row, text, confirm }) => ({
  async sections_are_reached_and_searched_by_keyboard(page, url) {
    const one = await start(url, "sleep 60; echo needle");
    const other = await start(url, "sleep 61");
    const over = await start(url, "echo in the haystack");
    await page.goto(url);
    await row(page, "running", other).waitFor();
    const active = () => page.evaluate(() => document.activeElement.closest("li")?.dataset.id ?? document.activeElement.id);
    await page.keyboard.press("/");
    assert.equal(await active(), "search");
    await page.keyboard.type("sleep needle");
    await until("one is found", async () => (await text(page, "matches")) === "1 of 2");
    await until("the other is hidden", async () => (await row(page, "running", other).count()) === 0);
    await page.keyboard.press("Escape");
    await until("both are back", async () => (await row(page, "running", other).count()) === 1);
    await page.keyboard.press("ArrowDown");
    assert.equal(await active(), one);
    await page.keyboard.press("ArrowDown");
    assert.equal(await active(), other);
    await page.keyboard.press("k");
    assert.equal(await active(), one);
    await page.keyboard.press("Enter");
    assert.equal(await active(), "title");
    await until("title", async () => (await text(page, "title")) === `Run ${one}`);
    // The title has the focus without a frame.
    assert.equal(await page.locator("#title").evaluate((node) => getComputedStyle(node).outlineStyle), "none");
    await page.keyboard.press("Escape");
    assert.equal(await active(), one);
    await page.keyboard.press("5");
    await row(page, "ended", over).waitFor();
    assert.ok(await page.locator("#panel-running").isHidden());
    await page.keyboard.press("1");
    await page.keyboard.press("x");
    assert.ok(await page.locator("#confirm").isVisible());
    await page.keyboard.press("Enter");
    await page.locator("#verdict").waitFor();
    assert.equal((await ask(url, `/v1/runs/${one}`)).outcome.ending, "cancelled");
    await page.keyboard.press("?");
    assert.ok(await page.locator("#help").isVisible());
    await page.keyboard.press("Escape");
    // What is shown survives a reload, and the browser's way back.
    await page.reload();
    await until("the same run", async () => (await text(page, "title")) === `Run ${one}`);
    await page.locator("#tab-running").waitFor();
    await page.locator("#tab-running").focus();
    await page.keyboard.press("ArrowRight");
    assert.equal(await page.locator("#tab-queue").getAttribute("aria-selected"), "true");
    await page.goBack();
    await until("the section before", async () => (await page.locator("#tab-running").getAttribute("aria-selected")) === "true");
  },

  async runs_are_paused_resumed_interrupted_and_forgotten(page, url) {
    const id = await start(url, "for i in 1 2 3; do echo \"epoch $i/9\"; sleep 0.3; done; sleep 300 & wait", { wall_ms: 600_000 });
    await page.goto(url);
    await row(page, "running", id).click();
    await until("its progress", async () => (await text(page, "done-text")).startsWith("2 of 9 (22 %)"));
    assert.ok((await row(page, "running", id).textContent()).includes("2 of 9"));
    assert.ok((await row(page, "running", id).textContent()).includes("waits for a child process"));
    await until("its processes", async () => (await text(page, "more")).includes("sleep"));
    await confirm(page, "pause");
    await until("it is paused", async () => (await text(page, "state")).includes("paused: its clock is stopped"));
    assert.ok((await ask(url, "/v1/runs?status=running")).runs.find((run) => run.run_id === id).paused);
    await page.locator("#resume").click();
    await until("it runs", async () => !(await text(page, "state")).includes("paused"));
    await confirm(page, "interrupt");
    await page.locator("#forget").waitFor();
    const { outcome } = await ask(url, `/v1/runs/${id}`);
    assert.equal(outcome.signal, "SIGINT");
    await confirm(page, "forget");
    await until("its record is removed", async () => (await text(page, "answer")) === "Its record is removed.");
    await page.locator("#tab-ended").click();
    await page.locator("#ended-note").waitFor();
    assert.equal(await row(page, "ended", id).count(), 0);
  },

  async the_layers_of_a_run_are_a_timeline(page, url) {
    const { run_id: id } = await ask(url, "/v1/runs", { command: ["sh", "-c", "trap '' TERM; sleep 30"], wall_ms: 300, grace_ms: 200 });
    await page.goto(`${url}/#ended/run/${id}`);
    await page.locator("#verdict").waitFor();
    await until("its layers", async () => (await page.locator("#layers li").count()) === 5);
    const layers = await page.locator("#layers li").allTextContents();
    const { verdict } = (await ask(url, `/v1/runs/${id}`)).outcome;
    assert.equal(layers[0], `queued ${verdict.spent.queued_ms} ms`);
    assert.equal(layers[1], `spawn ${verdict.spent.spawn_ms} ms`);
    const [term, kill] = verdict.signals.map(({ at_ms }) => at_ms);
    assert.equal(layers[2], `run ${term} ms`);
    assert.equal(layers[3], `grace ${kill - term} ms (SIGTERM to SIGKILL)`);
    assert.match(layers[4], /^kill \d+ ms \(2 processes killed\)$/);
  },

  async queued_cells_have_a_line_and_are_cancelled(page, url) {
    const { context_id: id } = await ask(url, "/v1/contexts", {});
    const cell = (code) => ask(url, `/v1/contexts/${id}/execute`, { code, wait_ms: 0, detach: true });
    const { run_id: busy } = await cell("import time\ntime.sleep(100)");
    const { run_id: waits } = await cell("1");
    await page.goto(url);
    await row(page, "running", waits).waitFor();
    assert.match(await text(page, "running-count"), /^1 \+ 1 queued$/);
    assert.match(await row(page, "running", waits).textContent(), /queued: waits for its turn/);
    await row(page, "running", waits).click();
    await until("its layer", async () => (await page.locator("#layers li").allTextContents()).join().startsWith("queued"));
    await confirm(page, "kill");
    await page.locator("#verdict").waitFor();
    assert.equal((await ask(url, `/v1/runs/${waits}`)).outcome.ending, "cancelled");
    await row(page, "running", busy).click();
    await confirm(page, "interrupt");
    await page.locator("#verdict").waitFor();
    assert.equal((await ask(url, `/v1/runs/${busy}`)).outcome.error.type, "KeyboardInterrupt");
    await until("its error", async () => (await text(page, "results")).includes("KeyboardInterrupt"));
  },

  async results_of_cells_are_shown_and_stay_harmless(page, url) {
    const { context_id: id } = await ask(url, "/v1/contexts", {});
    const cell = async (code) => (await ask(url, `/v1/contexts/${id}/execute`, { code })).run_id;
    const shown = async (code) => {
      const run = await cell(code);
      await page.goto(`${url}/#ended/run/${run}`);
      await until("it is shown", async () => (await text(page, "title")) === `Run ${run}` && (await page.locator("#verdict").isVisible()));
    };
    const html = "<script>window.owned = 1</script><img src=x onerror='window.owned = 1'><iframe srcdoc='<script>parent.owned = 1</script>'></iframe>"
      + "<svg onload='window.owned = 1'></svg><style>body { display: none }</style><table onclick='window.owned = 1' style='position: fixed'><tr><th colspan=2>head</th></tr>"
      + "<tr><td>one<td>&lt;two&gt;<a href='javascript:window.owned = 1'>three</a></table><b title='\">'>four";
    await shown(`class T:\n  def _repr_html_(self): return ${JSON.stringify(html)}\nT()`);
    const result = page.locator("#results .result");
    assert.deepEqual(await result.locator("td").allTextContents(), ["one", "<two>three"]);
    assert.equal(await result.locator("th").getAttribute("colspan"), "2");
    assert.equal(await result.locator("b").textContent(), "four");
    const attributes = await result.evaluate((node) => [...node.querySelectorAll("*")].flatMap((one) => one.getAttributeNames()));
    assert.deepEqual(attributes, ["class", "colspan"]);
    assert.deepEqual(await page.evaluate(() => [window.owned, document.scripts.length, document.querySelectorAll("img, iframe, #results style, #results a").length]), [undefined, 1, 0]);
    // Quotes and tags without an end take no more time than others.
    await shown("class U:\n  def _repr_html_(self): return \"<a '\" * 100000 + '<b'\nU()");
    const svg = "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20' onload='window.owned = 1'><script>window.owned = 1</script><rect width='40' height='20'/></svg>";
    await shown(`class S:\n  def _repr_svg_(self): return ${JSON.stringify(svg)}\nS()`);
    await until("the figure", () => page.locator("#results img").evaluate((image) => image.complete && image.naturalWidth === 40));
    assert.equal(await page.evaluate(() => window.owned), undefined);
    await shown("print('some')\n{'a': [1, 2]}");
    await until("the value", async () => /'a': \[1, 2\]|"a"/.test(await text(page, "results")));
    await shown("1/0");
    await until("the error", async () => (await text(page, "results")).includes("ZeroDivisionError: division by zero"));
  },

  async sandboxes_are_shown_and_deleted(page, url) {
    await page.goto(`${url}/#sandboxes`);
    await until("that there is none", async () => (await text(page, "sandboxes-note")).startsWith("No sandbox."));
    const { sandbox_id: id } = await ask(url, "/v1/sandboxes", {});
    await row(page, "sandboxes", id).waitFor();
    assert.match(await row(page, "sandboxes", id).textContent(), /idle.*0 runs.*template host.*created/);
    const { run_id } = await ask(url, `/v1/sandboxes/${id}/exec`, { command: ["sleep", "600"], wait_ms: 0 });
    await row(page, "sandboxes", id).click();
    await until("the run in it", async () => /in use.*1 run/.test(await text(page, "state")));
    await page.reload();
    await until("the same sandbox", async () => (await text(page, "title")) === `Sandbox ${id}`);
    await until("the count", async () => (await text(page, "sandboxes-count")) === "1");
    await page.locator("#search").fill("nothing like it");
    await until("no line", async () => (await page.locator("#sandboxes li").count()) === 0);
    await page.locator("#search").fill("host in use");
    await row(page, "sandboxes", id).waitFor();
    await page.locator("#delete").click();
    assert.match(await text(page, "question"), /Its files are deleted, and 1 run in it ends\./);
    await page.locator("#yes").click();
    await until("that it is gone", async () => (await text(page, "state")).startsWith("It was deleted"));
    assert.equal((await ask(url, `/v1/runs/${run_id}`)).outcome.ending, "cancelled");
    assert.deepEqual((await ask(url, "/v1/sandboxes")).sandboxes, []);
  },

  async jobs_are_shown_cancelled_retried_and_purged(page, url) {
    const submit = async (job) => (await ask(url, "/v1/jobs", job)).jobs[0].job_id;
    const evil = "<img src=x onerror='window.owned = 1'>";
    const bad = await submit({ name: evil, key: "mail:send", breaker: { failures: 1, open_ms: 600_000, scope: "store" }, command: ["sh", "-c", 'printf "\\033[31mfrom the job\\033[0m\\n"; exit 3'], attempts: 2, backoff_ms: [10] });
    const good = await submit({ name: "stepping", steps: [{ name: "first", command: ["true"] }, { name: "second", needs: ["first"], command: ["sh", "-c", "echo kept > out.txt"] }], outputs: ["*.txt"] });
    await page.goto(`${url}/#queue`);
    await until("both have ended", async () => (await row(page, "jobs", good).textContent()).includes("succeeded") && (await row(page, "jobs", bad).textContent()).includes("failed"));
    await row(page, "jobs", good).click();
    await until("its steps", async () => /first.*second/.test(await text(page, "more")));
    assert.ok((await text(page, "more")).includes("out.txt"));
    const saved = page.waitForEvent("download");
    await page.getByRole("button", { name: "Save out.txt" }).click();
    assert.equal((await saved).suggestedFilename(), "out.txt");
    await row(page, "jobs", bad).click();
    await until("its log", async () => (await text(page, "output")).includes("from the job\n"));
    assert.equal(await page.locator("#output .f1").first().textContent(), "from the job");
    await until("its breaker", async () => (await text(page, "more")).includes("mail:send"));
    assert.ok((await text(page, "layers")).includes("attempts"));
    await page.locator("#queue-breakers").click();
    await row(page, "jobs", "breaker mail:send").waitFor();
    await until("breakers-count", async () => (await text(page, "breakers-count")) === "1");
    assert.match(await row(page, "jobs", "breaker mail:send").textContent(), /mail:sendopen.*1 failure in a row.*admits a probe after \d+ min/);
    await row(page, "jobs", "breaker mail:send").click();
    await until("its failures", async () => (await text(page, "more")).includes("exit"));
    await page.reload();
    await until("the same breaker", async () => (await text(page, "state")).startsWith("open"));
    assert.equal(await page.locator("#queue-breakers").getAttribute("aria-pressed"), "true");
    await page.locator("#queue-jobs").click();
    await row(page, "jobs", bad).click();
    const before = (await ask(url, `/v1/jobs/${bad}`)).submitted_ms;
    await confirm(page, "retry");
    await until("it was queued again", async () => (await ask(url, `/v1/jobs/${bad}`)).submitted_ms > before);
    await until("it failed again", async () => (await text(page, "state")).startsWith("failed"));
    await until("its new log", async () => (await text(page, "output")).includes("from the job\n"));
    const long = await submit({ name: "long", command: ["sleep", "300"] });
    await row(page, "jobs", long).waitFor();
    await page.locator("#search").fill("long");
    await until("it alone", async () => (await page.locator("#jobs li").count()) === 1);
    await row(page, "jobs", long).click();
    await confirm(page, "cancel");
    await until("it is cancelled", async () => (await text(page, "state")).startsWith("cancelled"));
    await page.locator("#search").fill("");
    await submit({ name: "later", queue: "mail", not_before_ms: Date.now() + 3_600_000, command: ["true"] });
    const queue = page.locator('#queues tr[data-queue="mail"]');
    await queue.waitFor();
    await queue.getByRole("button", { name: "Pause" }).click();
    await page.locator("#yes").click();
    await until("the queue is paused", async () => (await ask(url, "/v1/jobs/queues")).queues.some(({ queue: name, paused }) => name === "mail" && paused));
    await queue.getByRole("button", { name: "Resume" }).click();
    await until("it hands out again", async () => (await ask(url, "/v1/jobs/queues")).queues.every(({ paused }) => !paused));
    await page.locator("#purge").click();
    await page.locator("#purge-state").selectOption("ok");
    await page.locator("#yes").click();
    await until("it is purged", async () => (await row(page, "jobs", good).count()) === 0);
    assert.equal(await row(page, "jobs", bad).count(), 1);
    assert.deepEqual(await page.evaluate(() => [window.owned, document.images.length]), [undefined, 0]);
  },

  async dead_letters_are_requeued(page, url) {
    // A job is dead after several workers were lost with it; here the server is made to say so.
    const dead = { job_id: "d0a", name: "lost", queue: "mail", state: "dead", cancel: null, deadline_ms: null, deliveries: 3, due_ms: 1, ended_ms: Date.now(), error: "its workers were lost", leased_ms: 1, ok: false, priority: 0, submitted_ms: 1, worker: "w" };
    await page.route("**/v1/jobs/queues", (route) => route.fulfill({ json: { queues: [{ queue: "mail", dead: 1, leased: 0, oldest_ms: null, paused: false, queued: 0, scheduled: 0 }] } }));
    await page.route("**/v1/jobs?*", (route) => route.fulfill({ json: { jobs: route.request().url().includes("state=dead") ? [dead] : [], next: null } }));
    await page.goto(`${url}/#queue`);
    await until("the count", async () => (await text(page, "dead-count")) === "1");
    await page.locator("#queue-dead").click();
    await row(page, "jobs", "d0a").waitFor();
    assert.ok((await row(page, "jobs", "d0a").textContent()).includes("its workers were lost"));
    const asked = page.waitForRequest("**/v1/jobs/requeue");
    await page.locator('#queues tr[data-queue="mail"]').getByRole("button", { name: "Requeue" }).click();
    await page.locator("#yes").click();
    assert.deepEqual((await asked).postDataJSON(), { queue: "mail" });
    await until("the answer", async () => (await text(page, "queue-answer")) === "0 jobs are queued again.");
  },

  async a_store_that_is_away_leaves_the_rest(page, url) {
    const id = await start(url, "sleep 60");
    const away = { code: "store_unreachable", message: "the store is away", hint: "Start it.", retryable: true };
    await page.route("**/v1/jobs*", (route) => route.fulfill({ status: 503, json: away }));
    await page.route("**/v1/jobs/queues", (route) => route.fulfill({ status: 503, json: away }));
    await page.goto(`${url}/#queue`);
    await until("why", async () => (await text(page, "jobs-note")) === "the store is away. Start it.");
    await until("connection", async () => (await text(page, "connection")) === "Connected.");
    await page.locator("#tab-running").click();
    await row(page, "running", id).waitFor();
    await page.unroute("**/v1/jobs*");
    await page.unroute("**/v1/jobs/queues");
    await page.locator("#tab-queue").click();
    await until("it is back", async () => (await text(page, "jobs-note")).startsWith("No such job."));
  },

  async addresses_reach_nothing_but_ids(page, url) {
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.goto(`${url}/#running/run/..%2F..%2Fhealthz`);
    await until("it asks", () => asked.some((one) => one.includes("/v1/runs?")));
    await until("title", async () => (await text(page, "title")) === "Nothing is chosen");
    await page.goto(`${url}/#nowhere/run/%E0%A4%A`);
    await page.reload();
    await page.locator("#tab-running[aria-selected=true]").waitFor();
    assert.deepEqual(asked.filter((one) => one.includes("healthz")), []);
  },

  async runs_forgotten_elsewhere_leave_the_list(page, url) {
    const ids = [];
    for (let number = 0; number < 30; number += 1) ids.push((await ask(url, "/v1/runs", { command: ["true"] })).run_id);
    await page.goto(`${url}/#ended`);
    await row(page, "ended", ids[29]).waitFor();
    await page.locator("#ended").locator("button").first().focus();
    await page.keyboard.press("End");
    await row(page, "ended", ids[0]).waitFor();
    const gone = await fetch(`${url}/v1/runs/${ids[2]}`, { method: "DELETE" });
    assert.equal(gone.status, 204);
    await until("it left", async () => (await row(page, "ended", ids[2]).count()) === 0 && (await row(page, "ended", ids[0]).count()) === 1);
  },

  async long_lists_draw_what_is_in_view(page, url) {
    const now = Date.now();
    const runs = Array.from({ length: 999 }, (_, index) => ({
      run_id: `run${index}`, command: ["echo", `word${index}`], created_at_ms: now - index * 1000, elapsed_ms: 5, ended_at_ms: now - index * 1000, ending: "exited",
      exit_code: 0, ok: true, paused: false, progress: null, sentence: null, status: "ended", waiting_for: null, wall_left_ms: null, wall_ms: null,
    }));
    const limit = (route) => Number(new URL(route.request().url()).searchParams.get("limit"));
    await page.route("**/v1/runs?status=ended*", (route) => route.fulfill({ json: { runs: runs.slice(0, limit(route)), total: runs.length } }));
    await page.goto(`${url}/#ended`);
    await row(page, "ended", "run0").waitFor();
    const lines = () => page.locator("#ended li").count();
    assert.ok((await lines()) < 60, `${await lines()}`);
    await row(page, "ended", "run0").focus();
    await page.keyboard.press("End");
    await until("the last has the focus", () => page.evaluate(() => document.activeElement.closest("li")?.dataset.id === "run998"));
    assert.ok((await lines()) < 60);
    assert.equal(await page.locator('#ended li[data-id="run998"]').getAttribute("aria-posinset"), "999");
    // What is in view stays in view when other runs end.
    await page.keyboard.press("PageUp");
    await page.keyboard.press("PageUp");
    const active = await page.evaluate(() => document.activeElement.closest("li").dataset.id);
    const place = () => page.locator(`#ended li[data-id="${active}"]`).evaluate((node) => Math.round(node.getBoundingClientRect().top));
    const before = await place();
    runs.unshift({ ...runs[0], run_id: "fresh", command: ["echo", "fresh"] });
    await until("it is counted", async () => (await text(page, "ended-count")) === "1,000");
    await until("the view is as before", async () => (await place()) === before && (await page.locator(`#ended li[data-id="${active}"]`).getAttribute("aria-posinset")) !== null);
    assert.equal(await page.evaluate(() => document.activeElement.closest("li").dataset.id), active);
    await page.locator("#search").fill("word99");
    await until("it alone", async () => (await text(page, "matches")) === "10 of 1,000");
    await until("its lines alone", async () => (await lines()) === (await page.locator("#ended li", { hasText: "word99" }).count()));
  },

  async schedules_are_shown_and_removed(page, url) {
    const evil = "<img src=x onerror='window.owned = 1'> /..";
    const store = async (name, spec) => {
      const answer = await fetch(`${url}/v1/jobs/schedules/${encodeURIComponent(name)}`, { method: "PUT", body: JSON.stringify(spec) });
      assert.equal(answer.status, 200, await answer.text());
    };
    const schedules = async () => (await ask(url, "/v1/jobs/schedules")).schedules;
    await store("often", { every_ms: 1000, job: { command: ["true"] } });
    await store("nightly", { cron: "30 2 * * *", time_zone: "Europe/Berlin", job: { command: ["echo", "report"], queue: "reports" } });
    await store(evil, { every_ms: 60_000, paused: true, job: { command: ["true"] } });
    await page.goto(`${url}/#queue`);
    await page.locator("#queue-schedules").click();
    await row(page, "jobs", "schedule nightly").waitFor();
    await until("schedules-count", async () => (await text(page, "schedules-count")) === "3");
    const line = (name) => page.locator("#jobs li", { hasText: name }).textContent();
    assert.match(await line("nightly"), /next in \d+ .*30 2 \* \* \* in Europe\/Berlin.*queue reports.*no job yet/);
    assert.match(await line(evil), /paused.*every 1 min/);
    await until("its last job", async () => /last job has ended/.test(await line("often")));
    await page.locator("#search").fill("berlin");
    await until("it alone", async () => (await page.locator("#jobs li").count()) === 1);
    await page.locator("#search").fill("");
    await row(page, "jobs", "schedule often").click();
    await until("its specification", async () => (await text(page, "more")).includes('"every_ms": 1000'));
    await page.locator("#show-job").click();
    await until("the job", async () => (await text(page, "state")).startsWith("succeeded"));
    await page.goBack();
    await until("the schedule", async () => (await text(page, "title")) === "Schedule often");
    // It stays in the section that the address names.
    await page.goto("about:blank");
    await page.goto(`${url}/#ended/schedule/often`);
    await until("the same schedule", async () => (await text(page, "state")).includes("every 1 s"));
    assert.equal(await page.locator("#tab-ended").getAttribute("aria-selected"), "true");
    await page.goto("about:blank");
    await page.goto(`${url}/#queue/schedule/often`);
    // The address leads to it as well, whatever it is called.
    await row(page, "jobs", `schedule ${evil}`).click();
    await page.reload();
    await until("its state", async () => (await text(page, "state")).startsWith("paused"));
    assert.equal(await page.locator("#queue-schedules").getAttribute("aria-pressed"), "true");
    assert.equal(await row(page, "jobs", `schedule ${evil}`).getAttribute("aria-pressed"), "true");
    await page.locator("#resume").click();
    await until("it continues", async () => (await text(page, "state")).startsWith("next in"));
    await confirm(page, "pause");
    await until("it is paused", async () => (await text(page, "state")).startsWith("paused"));
    assert.deepEqual((await schedules()).filter(({ next_ms: next }) => next === null).map(({ name }) => name), [evil]);
    await confirm(page, "remove");
    await until("it is removed", async () => (await schedules()).every(({ name }) => name !== evil));
    await until("its line has left", async () => (await page.locator("#jobs li").count()) === 2);
    assert.equal(await page.evaluate(() => window.owned), undefined);
  },

  async queued_jobs_show_why_no_worker_has_them(page, url) {
    const submit = async (job) => (await ask(url, "/v1/jobs", job)).jobs[0].job_id;
    await ask(url, "/v1/jobs/pause", { queue: "held" });
    const first = await submit({ name: "first", queue: "held", command: ["true"] });
    const last = await submit({ name: "last", after: [first], command: ["true"] });
    const large = await submit({ name: "large", queue: "held", command: ["true"] });
    // The worker of this server has no bound of memory.
    const memory = { reason: "memory", bytes: 2 ** 31, largest_bytes: 2 ** 30 };
    const handler = { reason: "no_handler", handlers: ["train", "test"] };
    const unreadable = { reason: "unreadable_spec", worker: "old", version: "0.0.9", field: "map", problem: "unknown field" };
    await page.route(`**/v1/jobs/${large}`, async (route) => {
      const job = await (await route.fetch()).json();
      await route.fulfill({ json: { ...job, blocked_by: [...job.blocked_by, memory, handler, unreadable] } });
    });
    await page.goto(`${url}/#queue`);
    await row(page, "jobs", first).click();
    await until("its queue", async () => (await text(page, "doing")).includes("Its queue held is paused."));
    await row(page, "jobs", last).click();
    await until("the other job", async () => (await text(page, "doing")).includes(`It waits for the end of ${first}.`));
    assert.match(await row(page, "jobs", last).textContent(), /waits for the end of 1 job/);
    await row(page, "jobs", large).click();
    const needs = "It needs a worker with 2.0 GiB of memory; the largest live one has 1.0 GiB.";
    const handlers = "It needs a worker with the handlers “train” and “test”; no live worker of its queue has all of them.";
    const reads = "It waits for a worker that can read its spec: old of version 0.0.9 cannot (map: unknown field).";
    await until("its memory", async () => (await text(page, "doing")) === `Its queue held is paused. ${needs} ${handlers} ${reads}`);
    await row(page, "jobs", last).click();
    await ask(url, "/v1/jobs/resume", { queue: "held" });
    await until("it succeeded", async () => (await text(page, "state")).startsWith("succeeded"));
    await until("nothing is in its way", () => page.locator("#doing").isHidden());
  },

  async runs_show_their_contexts_and_how_long_they_waited(page, url) {
    const { context_id: id } = await ask(url, "/v1/contexts", {});
    const cell = (code) => ask(url, `/v1/contexts/${id}/execute`, { code, wait_ms: 0, detach: true });
    const { run_id: first } = await cell("import time\ntime.sleep(6)");
    const { run_id: second } = await cell("1");
    await page.goto(url);
    await until("the context of both", async () => (await page.locator("#running li", { hasText: `context ${id}` }).count()) === 2);
    assert.match(await row(page, "running", second).textContent(), new RegExp(`queued: waits for its turn.*context ${id}`));
    await row(page, "running", first).click();
    await until("what was before it", async () => /^queued .*spawn .*run, so far /.test((await page.locator("#layers li").allTextContents()).join(", ")));
    await page.locator("#tab-ended").click();
    await row(page, "ended", second).click();
    assert.match(await row(page, "ended", second).textContent(), new RegExp(`queued [1-9]\\d*\\.\\d s.*context ${id}`));
    await until("where its time went", async () => /Queued before[1-9]\d*\.\d s.*Being started\d+ ms/.test(await text(page, "time")));
    assert.match((await page.locator("#layers li").allTextContents()).join(", "), /^queued [1-9]\d*\.\d s, spawn \d+ ms, run \d+ ms$/);
    await page.locator("#show-context").click();
    await until("title", async () => (await text(page, "title")) === `Context ${id}`);
    // A closed one may have been a session.
    assert.ok((await fetch(`${url}/v1/contexts/${id}`, { method: "DELETE" })).ok);
    await until("its id alone", async () => !(await row(page, "ended", second).textContent()).includes("context"));
    assert.ok((await row(page, "ended", second).textContent()).includes(`in ${id}`));
  },

  async lists_beyond_a_part_are_read_by_the_cursor(page, url) {
    const now = Date.now();
    const job = (index) => ({
      job_id: `job${index}`, name: "many", queue: "q", state: "ended", cancel: null, deadline_ms: null, deliveries: 1, due_ms: 1, ended_ms: now, error: null,
      leased_ms: 1, ok: true, priority: 0, submitted_ms: now - index, worker: "w", waiting_for: 0,
    });
    const run = (index) => ({
      run_id: `run${index}`, command: ["echo", "many"], created_at_ms: now, elapsed_ms: 5, ended_at_ms: now, ending: "exited", exit_code: 0, ok: true, paused: false,
      progress: null, sentence: null, status: "ended", waiting_for: null, wall_left_ms: null, wall_ms: null, queued_ms: 0, spawn_ms: 1, context_id: null,
    });
    const COUNT = 2345;
    const part = (route, key, make) => {
      const asked = new URL(route.request().url()).searchParams;
      assert.equal(asked.get("total"), key === "jobs" && !asked.has("cursor") ? "true" : null);
      const [from, limit] = [Number(asked.get("cursor") ?? 0), Number(asked.get("limit"))];
      assert.ok(limit <= 1000);
      const to = Math.min(COUNT, from + limit);
      const items = Array.from({ length: to - from }, (_, index) => make(from + index));
      return route.fulfill({ json: { [key]: items, total: COUNT, next: to < COUNT ? String(to) : null } });
    };
    await page.route("**/v1/jobs?*", (route) => part(route, "jobs", job));
    await page.route("**/v1/runs?status=ended*", (route) => part(route, "runs", run));
    const readAll = async (list, name) => {
      await page.locator(`#${list} button`).first().focus();
      const last = `${name}${COUNT - 1}`;
      await until(`the last of ${list}`, async () => {
        await page.keyboard.press("End");
        return page.evaluate((last) => document.activeElement.closest("li")?.dataset.id === last, last);
      });
      assert.equal(await row(page, list, last).evaluate((node) => node.parentElement.getAttribute("aria-setsize")), String(COUNT));
      assert.equal(await text(page, "matches"), "");
    };
    await page.goto(`${url}/#queue`);
    await until("the totals of jobs", async () => (await text(page, "matches")) === "200 of 2,345 listed");
    // What is found fits the view: only a move to its end reads more of the store.
    await page.locator("#search").fill("job199");
    await until("what is found", async () => (await text(page, "matches")) === "1 of the 200 of 2,345 listed");
    for (let look = 0; look < 2; look += 1) await page.waitForResponse("**/v1/jobs?*");
    assert.equal(await text(page, "matches"), "1 of the 200 of 2,345 listed");
    await page.locator("#jobs button").first().focus();
    await page.keyboard.press("End");
    await until("more is searched", async () => (await text(page, "matches")) === "1 of the 400 of 2,345 listed");
    await page.locator("#search").fill("");
    await readAll("jobs", "job");
    await page.locator("#tab-ended").click();
    await until("the totals of runs", async () => (await text(page, "matches")) === "1,000 of 2,345 listed");
    await page.locator("#search").fill("many");
    await until("what is searched", async () => (await text(page, "matches")) === "1,000 of the 1,000 of 2,345 listed");
    await page.locator("#search").fill("");
    await readAll("ended", "run");
  },

  async narrow_windows_show_one_thing_at_a_time(page, url) {
    const id = await start(url, "sleep 100");
    await page.setViewportSize({ width: 360, height: 640 });
    await page.goto(url);
    await row(page, "running", id).click();
    assert.ok(await page.locator("#lists").isHidden());
    await until("title", async () => (await text(page, "title")) === `Run ${id}`);
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await page.locator("#back").click();
    assert.ok(await page.locator("#detail").isHidden());
    await until("the line has the focus", () => page.evaluate((id) => document.activeElement.closest("li")?.dataset.id === id, id));
    for (const name of ["queue", "contexts", "ended"]) {
      await page.locator(`#tab-${name}`).click();
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name);
    }
  },
});
