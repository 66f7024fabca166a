// Lists of any length: only the lines in view, and the active one, are in the document.

/** The height of a line, as in the style, in rem. */
const ROW_REM = 5.5;
/** Lines that are drawn above and below what is in view. */
const MARGIN = 6;

class Rows {
  /**
   * `key` names an item's id, `draw` fills a line's button, `open` is what Enter and a click do. `atEnd` is called when the
   * last line is drawn, with whether the user has moved there.
   */
  constructor(id, { key, draw, open, atEnd }) {
    Object.assign(this, { key, draw, open, atEnd, hasMovedToEnd: false, items: [], nodes: new Map(), active: null, planned: false, height: 0, top: 0 });
    this.list = at(id);
    this.scroller = this.list.parentElement;
    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.measure()).observe(this.scroller);
    this.list.addEventListener("keydown", (event) => this.pressed(event));
    this.list.addEventListener("focusin", ({ target }) => this.activate(target.closest("li")?.dataset.id));
    this.list.addEventListener("click", ({ target, detail }) => {
      const id = target.closest("li")?.dataset.id;
      if (id) this.open(this.item(id), detail === 0);
    });
    this.measure();
  }

  measure() {
    this.row = ROW_REM * Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.height = this.scroller.clientHeight;
    this.top = this.scroller.scrollTop;
    this.plan(true);
  }

  /** Moves the view. What is read of it is what was last known, so that nothing is laid out for that alone. */
  scroll(top) {
    this.top = Math.max(0, Math.min(top, this.items.length * this.row - this.height));
    this.scroller.scrollTop = this.top;
  }

  /** Follows the scroller. Where `scroll` has put it is known, so that another place is the user's. */
  scrolled() {
    const top = this.scroller.scrollTop;
    this.hasMovedToEnd ||= top > 0 && Math.abs(top - this.top) >= 1 && top + this.height >= (this.items.length - MARGIN) * this.row;
    this.top = top;
    this.plan();
  }

  item(id) {
    return this.items.find((item) => item[this.key] === id);
  }

  /** Takes the items as they are now. What is in view stays in view when lines come or go above it. */
  set(items) {
    const { top } = this;
    const first = Math.floor(top / this.row);
    const anchor = top > 0 ? this.items[first]?.[this.key] : undefined;
    this.items = items;
    this.list.style.height = `${items.length * this.row}px`;
    if (anchor !== undefined) {
      const moved = items.findIndex((item) => item[this.key] === anchor);
      if (moved >= 0 && moved !== first) this.scroll(top + (moved - first) * this.row);
    }
    if (!items.some((item) => item[this.key] === this.active)) this.active = items[0]?.[this.key] ?? null;
    this.plan(true);
  }

  /** Draws in the next frame; with `all` also the lines that are there. */
  plan(all = false) {
    this.whole ||= all;
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      const whole = this.whole;
      this.whole = false;
      this.render(whole);
    });
  }

  render(all) {
    const { top } = this;
    const from = Math.max(0, Math.floor(top / this.row) - MARGIN);
    const to = Math.min(this.items.length, Math.ceil((top + this.height) / this.row) + MARGIN);
    const wanted = new Map();
    for (let index = from; index < to; index += 1) wanted.set(this.items[index][this.key], index);
    // The active line stays, so that the focus is not lost by scrolling.
    if (!wanted.has(this.active)) {
      const index = this.items.findIndex((item) => item[this.key] === this.active);
      if (index >= 0) wanted.set(this.active, index);
    }
    for (const [id, node] of this.nodes) {
      if (wanted.has(id)) continue;
      node.remove();
      this.nodes.delete(id);
    }
    let place = this.list.firstElementChild;
    for (const [id, index] of [...wanted].sort((one, other) => one[1] - other[1])) {
      const known = this.nodes.get(id);
      const node = known ?? this.add(id);
      if (node === place) place = place.nextElementSibling;
      else this.list.insertBefore(node, place);
      if (!known || all) this.fill(node, index);
    }
    if (to < this.items.length || to === 0) return;
    const { hasMovedToEnd } = this;
    this.hasMovedToEnd = false;
    this.atEnd?.(hasMovedToEnd);
  }

  add(id) {
    const node = made("li", "");
    node.dataset.id = id;
    const button = made("button", "row");
    button.type = "button";
    const wall = made("progress", "wall");
    wall.setAttribute("aria-label", "Time used of the wall limit");
    const done = made("progress", "done");
    done.setAttribute("aria-label", "Progress that it reports");
    wall.hidden = done.hidden = true;
    button.append(made("span", "command"), made("span", "facts"), wall, done, made("span", "sentence"));
    node.append(button);
    this.nodes.set(id, node);
    return node;
  }

  fill(node, index) {
    const item = this.items[index];
    const place = `translateY(${index * this.row}px)`;
    if (node.style.transform !== place) node.style.transform = place;
    node.setAttribute("aria-setsize", String(this.items.length));
    node.setAttribute("aria-posinset", String(index + 1));
    const button = node.firstElementChild;
    button.tabIndex = item[this.key] === this.active ? 0 : -1;
    const pressed = String(chosen !== null && chosen.line === item[this.key]);
    if (button.getAttribute("aria-pressed") !== pressed) button.setAttribute("aria-pressed", pressed);
    const [text, line, wall, done, sentence] = button.children;
    this.draw(item, { text, line, wall, done, sentence });
  }

  activate(id) {
    if (!id || this.active === id) return;
    for (const one of [this.active, id]) {
      const button = this.nodes.get(one)?.firstElementChild;
      if (button) button.tabIndex = one === id ? 0 : -1;
    }
    this.active = id;
  }

  /** Moves the focus to a line, and the line into view. */
  focus(index) {
    if (this.items.length === 0) return false;
    const bounded = Math.max(0, Math.min(this.items.length - 1, index));
    this.activate(this.items[bounded][this.key]);
    const top = bounded * this.row;
    if (top < this.top) this.scroll(top);
    const last = top + this.row - this.height;
    if (last > this.top) this.scroll(last);
    this.render(false);
    this.nodes.get(this.active)?.firstElementChild.focus({ preventScroll: true });
    return true;
  }

  focusActive() {
    return this.focus(Math.max(0, this.items.findIndex((item) => item[this.key] === this.active)));
  }

  pressed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const here = this.items.findIndex((item) => item[this.key] === this.active);
    const page = Math.max(1, Math.floor(this.height / this.row) - 1);
    const moves = {
      ArrowDown: here + 1, j: here + 1, ArrowUp: here - 1, k: here - 1, PageDown: here + page, PageUp: here - page,
      Home: 0, End: this.items.length - 1,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.hasMovedToEnd ||= moves[event.key] >= this.items.length - 1;
    this.focus(moves[event.key]);
  }
}

// What lines say.

/** The context or session of a run, if it has one. */
function contextOf(run) {
  if (!run.context_id) return null;
  const known = contexts.find((one) => one.context_id === run.context_id);
  // A closed one is in no list: a run does not name its kind.
  if (!known) return `in ${run.context_id}`;
  return `${known.language === "bash" ? "session" : "context"} ${run.context_id}`;
}

/** How long a run waited before it began, if it is at least 1 s. */
const MIN_SHOWN_QUEUED_MS = 1000;
const waited = ({ queued_ms: queued }) => (queued >= MIN_SHOWN_QUEUED_MS ? `queued ${time(queued)}` : null);

/** The state of a run, and what is above the output of the chosen one. */
function states(run) {
  const limit = run.wall_ms === null ? "no wall limit" : `wall limit ${round(run.wall_ms)}`;
  if (run.status === "queued") return [["queued: waits for its turn", "late"], contextOf(run), time(run.elapsed_ms)];
  if (run.status === "running") {
    const left = run.wall_left_ms === null ? null : `${time(run.wall_left_ms)} left`;
    const doing = run.paused ? null : WAITS[run.waiting_for] ?? run.waiting_for;
    return [run.paused ? ["paused: its clock is stopped", "late"] : "running", time(run.elapsed_ms), doing, left, limit, waited(run), contextOf(run)];
  }
  const since = Date.now() - run.ended_at_ms;
  return [[ending(run.ending, run.exit_code), run.ok ? "good" : "bad"], `after ${time(run.elapsed_ms)}`, ago(since), limit, waited(run), contextOf(run)];
}

function drawBar(bar, run) {
  const shown = run?.status === "running" && run.wall_left_ms !== null;
  show(bar, shown);
  if (!shown) return;
  const whole = Math.max(1, run.elapsed_ms + run.wall_left_ms);
  bar.max = whole;
  bar.value = run.elapsed_ms;
  bar.classList.toggle("late", run.wall_left_ms < whole / 10);
}

function drawProgress(bar, progress) {
  show(bar, Boolean(progress?.total));
  if (!progress?.total) return;
  bar.max = progress.total;
  bar.value = Math.min(progress.done, progress.total);
}

function drawRun(run, { text, line, wall, done, sentence }) {
  say(text, command(run.command));
  facts(line, ...states(run));
  drawBar(wall, run);
  const progress = run.status === "running" ? run.progress : null;
  drawProgress(done, progress);
  say(sentence, progress ? progressWords(progress) : run.sentence ?? "");
}

const runWords = (run) => `${run.run_id} ${command(run.command)} ${run.status} ${run.paused ? "paused" : ""} ${run.ending ?? ""} ${ENDINGS[run.ending] ?? ""} ${run.sentence ?? ""} ${run.waiting_for ?? ""} ${run.context_id ?? ""}`;

function jobState(job) {
  if (job.state === "ended") return job.ok ? ["succeeded", "good"] : ["failed", "bad"];
  if (job.state === "dead") return ["dead: no worker brought it to a result", "bad"];
  if (job.state === "leased") return [job.cancel === null ? "running" : "is being ended", job.cancel === null ? "" : "late"];
  return [job.state, job.state === "cancelled" ? "bad" : ""];
}

function jobFacts(job) {
  const now = Date.now();
  const taken = job.leased_ms === null ? null : job.leased_ms;
  const times = {
    scheduled: [job.waiting_for > 0 ? `waits for the end of ${some(job.waiting_for, "job", "jobs")}` : `starts ${until(job.due_ms - now)}`],
    queued: [`waits ${time(Math.max(0, now - Math.max(job.submitted_ms, job.due_ms)))}`],
    leased: [`for ${time(Math.max(0, now - taken))}`, job.worker === null ? null : `by ${job.worker}`],
  }[job.state] ?? [taken === null ? null : `after ${time(Math.max(0, job.ended_ms - taken))}`, job.ended_ms === null ? null : ago(now - job.ended_ms)];
  const deadline = job.ended_ms === null && job.deadline_ms !== null ? `deadline ${until(job.deadline_ms - now)}` : null;
  return [jobState(job), `queue ${job.queue}`, ...times, deadline, job.deliveries > 1 ? `${job.deliveries} deliveries` : null, job.priority ? `priority ${job.priority}` : null];
}

function drawJob(job, { text, line, sentence }) {
  say(text, `${job.name} ${job.job_id}`);
  facts(line, ...jobFacts(job));
  say(sentence, job.error ?? job.cancel ?? "");
}

const jobWords = (job) => `${job.job_id} ${job.name} ${job.queue} ${job.state} ${jobState(job)[0]} ${job.worker ?? ""} ${job.error ?? ""} ${job.cancel ?? ""}`;

function contextFacts(context, run) {
  const waits = context.waiting === 0 ? null : [`${some(context.waiting, "cell waits", "cells wait")} for a turn`, "late"];
  const idle = context.idle_left_ms === null ? "is kept" : context.run_id ? null : `ends in ${time(context.idle_left_ms)} if unused`;
  return [context.run_id ? `runs ${context.run_id}` : context.status, waits, run ? time(run.elapsed_ms) : null,
    `${context.executions} done`, context.checkpoint ? null : "has no checkpoint", idle];
}

function drawContext(context, { text, line, wall, done, sentence }) {
  const run = runs.get(context.run_id);
  say(text, `${context.language} ${context.context_id}`);
  facts(line, ...contextFacts(context, run));
  drawBar(wall, run);
  drawProgress(done, run?.progress);
  say(sentence, context.warnings.join(" ") || (run ? command(run.command) : ""));
}

const contextWords = (context) => `${context.context_id} ${context.language} ${context.language === "bash" ? "session" : "context"} ${context.status} ${context.run_id ?? "idle"} ${context.warnings.join(" ")}`;

const BREAKERS = { closed: ["closed", "good"], open: ["open", "bad"], half_open: ["half open", "late"] };

/** When an open breaker admits a probe. */
function probeWords({ state, retry_after_ms: after }) {
  if (state !== "open" || after === null) return null;
  return after > 0 ? `admits a probe after ${time(after)}` : "admits a probe";
}

const breakerFacts = (breaker) => [BREAKERS[breaker.state] ?? breaker.state, `${some(breaker.failures_in_a_row, "failure", "failures")} in a row`,
  breaker.times_opened ? `opened ${some(breaker.times_opened, "time", "times")}` : null, probeWords(breaker)];

function drawBreaker(breaker, { text, line, sentence }) {
  say(text, breaker.key);
  facts(line, ...breakerFacts(breaker), breaker.probe_of === null ? null : `probe of job ${breaker.probe_of}`);
  say(sentence, breaker.said.at(-1) ?? "");
}

const breakerWords = (breaker) => `${breaker.key} ${BREAKERS[breaker.state]?.[0] ?? breaker.state} ${breaker.probe_of ?? ""} ${breaker.said.join(" ")}`;
