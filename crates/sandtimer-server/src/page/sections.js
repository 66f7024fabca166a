// The sections: what the server is asked for while the page is seen, searched and shown.

/** Ended runs that each look asks for. */
const LATEST = 25;
const MAX_RUNNING = 1000;
/** Entries of a list that one answer has at most; more of them are read by the cursor, as the list is read to its end. */
const PART = 1000;
/** Jobs that a look asks for at first. */
const JOBS = 200;
/** How soon all ended runs are asked for again, after some were forgotten. */
const WHOLE_EVERY_MS = 10000;

const SECTIONS = ["running", "queue", "contexts", "sandboxes", "ended"];
let section = "running";
let queuePart = "jobs";
let contextKind = "all";
let query = [];

let running = [];
let queued = [];
let ended = { runs: [], total: 0, whole: false, at: 0 };
let endedLimit = PART;
let contexts = [];
let queues = [];
let jobs = [];
let jobLimit = JOBS;
let moreJobs = false;
let jobsTotal = 0;
/** When the list of jobs is asked for again: a long one less often. */
let jobsDue = 0;
let jobsError = "";
let breakers = [];
/** Whether the server has more of them than one answer has. */
let areMoreBreakers = false;
/** Whether the server has answered with the breakers since the page was opened. */
let areBreakersKnown = false;
/** Every run that a list knows, by its id. */
let runs = new Map();

let polling = null;
let failures = 0;
let latest = null;
let wake = () => {};

const openRun = (run, keys) => opened("run", run.run_id, keys);
const lists = {
  running: new Rows("running", { key: "run_id", draw: drawRun, open: openRun }),
  queue: new Rows("jobs", {
    key: "line", draw: (item, parts) => queueItem(item).draw(item, parts), open: (item, keys) => opened(queueItem(item).kind, queueItem(item).id(item), keys),
    atEnd: (hasMovedToEnd) => askForMoreJobs(hasMovedToEnd),
  }),
  contexts: new Rows("contexts", { key: "context_id", draw: drawContext, open: (item, keys) => opened(item.language === "bash" ? "session" : "context", item.context_id, keys) }),
  sandboxes: new Rows("sandboxes", { key: "sandbox_id", draw: drawSandbox, open: (item, keys) => opened("sandbox", item.sandbox_id, keys) }),
  ended: new Rows("ended", { key: "run_id", draw: drawRun, open: openRun, atEnd: (hasMovedToEnd) => askForMoreEnded(hasMovedToEnd) }),
};

const QUEUE_ITEMS = {
  jobs: { kind: "job", draw: drawJob, id: (item) => item.job_id }, breakers: { kind: "breaker", draw: drawBreaker, id: (item) => item.key },
  schedules: { kind: "schedule", draw: drawSchedule, id: (item) => item.name },
};
const queueItem = (item) => QUEUE_ITEMS[item.job_id !== undefined ? "jobs" : item.key !== undefined ? "breakers" : "schedules"];

const VIEWS = {
  run: { draw: drawChosenRun, follow: followRun },
  job: { draw: drawChosenJob, follow: followJob },
  context: { draw: drawChosenContext, follow: async () => {} },
  session: { draw: drawChosenContext, follow: async () => {} },
  sandbox: { draw: drawChosenSandbox, follow: async () => {} },
  breaker: { draw: drawChosenBreaker, follow: async () => {} },
  schedule: { draw: drawChosenSchedule, follow: async () => {} },
};

// Asking.

function halt() {
  polling?.abort();
  following?.abort();
  polling = following = null;
}

function go() {
  if (locked || document.hidden || polling) return;
  polling = new AbortController();
  void poll(polling.signal);
  if (chosen) follow();
}

/** Looks again at once, after an action or where another section is shown. */
const pollSoon = () => {
  jobsDue = 0;
  wake();
};

/** Reads a list part by part, until it has `wanted` entries or no more. `first` is asked of the first part only, which has the total. */
async function readParts(path, key, wanted, first = "") {
  const list = [];
  let answer;
  let total;
  do {
    const more = answer ? `&cursor=${encodeURIComponent(answer.next)}` : first;
    answer = await get(`${path}limit=${Math.min(PART, wanted - list.length)}${more}`);
    if (list.length === 0) total = answer.total;
    list.push(...answer[key]);
  } while (answer.next && list.length < wanted);
  return { ...answer, total, [key]: list };
}

async function poll(signal) {
  for (let look = 0; !signal.aborted; look += 1) {
    let next = POLL_MS;
    try {
      const woken = new Promise((done) => { wake = () => done(true); });
      const isDue = (name) => look % 2 === 0 || section === name;
      await Promise.all([lookAtRuns(signal), isDue("queue") ? lookAtJobs(signal) : null, isDue("sandboxes") ? loadSandboxes(signal) : null]);
      if (signal.aborted) return;
      failures = 0;
      document.body.classList.remove("stale");
      say(at("connection"), "Connected.");
      draw();
      await Promise.race([pause(next, signal), woken]);
      continue;
    } catch (error) {
      if (signal.aborted || locked) return;
      next = Math.min(LONGEST_PAUSE_MS, POLL_MS * 2 ** failures);
      failures += 1;
      document.body.classList.add("stale");
      say(at("connection"), `${reason(error)} Trying again in ${Math.round(next / 1000)} s.`);
    }
    await pause(next, signal);
  }
}

async function lookAtRuns(signal) {
  const all = section === "ended" && !ended.whole && Date.now() - ended.at > WHOLE_EVERY_MS;
  const limit = all ? endedLimit : LATEST;
  const [now, waiting, over, open] = await Promise.all([
    get(`/v1/runs?status=running&limit=${MAX_RUNNING}`),
    get(`/v1/runs?status=queued&limit=${MAX_RUNNING}`),
    readParts("/v1/runs?status=ended&", "runs", limit),
    get("/v1/contexts"),
  ]);
  if (signal.aborted) return;
  // The oldest first: what comes later does not move what one is about to press.
  running = now.runs.reverse();
  queued = waiting.runs.reverse();
  running.total = now.total;
  queued.total = waiting.total;
  contexts = open.contexts;
  takeEnded(over, all, limit);
  runs = new Map([...ended.runs, ...queued, ...running].map((run) => [run.run_id, run]));
}

/** Joins the runs that ended last with those that are known: an ended run does not change. */
function takeEnded(answer, all, limit) {
  const fresh = new Set(answer.runs.map((run) => run.run_id));
  const joined = answer.runs.length < limit || ended.runs.some((run) => fresh.has(run.run_id));
  const rest = all || !joined ? [] : ended.runs.filter((run) => !fresh.has(run.run_id));
  const wanted = Math.min(endedLimit, answer.total);
  const list = [...answer.runs, ...rest].slice(0, wanted);
  const known = new Set(ended.runs.map((run) => run.run_id));
  const forgotten = answer.total < ended.total + answer.runs.filter((run) => !known.has(run.run_id)).length;
  if (all) ended.at = Date.now();
  ended = { runs: list, total: answer.total, at: joined || all ? ended.at : 0, whole: (all || (ended.whole && joined && !forgotten)) && (all || list.length >= wanted) };
}

/** Whether the end of a list asks for more of it: the end of what a search has found does so only when the user has moved there. */
const isMoreWanted = (hasMovedToEnd) => query.length === 0 || hasMovedToEnd;

function askForMoreEnded(hasMovedToEnd) {
  if (!isMoreWanted(hasMovedToEnd) || section !== "ended" || !ended.whole || ended.runs.length < endedLimit || ended.total <= endedLimit) return;
  endedLimit += PART;
  ended = { ...ended, whole: false, at: 0 };
  pollSoon();
}

/** Takes a run out of the list that this page had forgotten. */
function dropEnded(id) {
  ended = { ...ended, runs: ended.runs.filter((run) => run.run_id !== id), total: Math.max(0, ended.total - 1) };
  runs.delete(id);
  draw();
}

async function lookAtJobs(signal) {
  try {
    const part = queuePart;
    const shown = section === "queue" && (part === "jobs" || part === "dead") && Date.now() >= jobsDue;
    const limit = jobLimit;
    const chosenState = at("job-state").value;
    const state = part === "dead" ? "dead" : chosenState;
    const [depths, listing] = await Promise.all([
      get("/v1/jobs/queues"),
      shown ? readParts(`/v1/jobs?${state ? `state=${state}&` : ""}`, "jobs", limit, "&total=true") : null,
      section === "queue" || chosen?.kind === "schedule" ? loadSchedules(signal) : null,
      section === "queue" || chosen?.kind === "breaker" ? loadBreakers(signal) : null,
    ]);
    if (signal.aborted) return;
    queues = depths.queues;
    jobsError = "";
    // Not into another list than it was asked for.
    if (!listing || queuePart !== part || at("job-state").value !== chosenState) return;
    jobs = listing.jobs;
    for (const job of jobs) job.line = job.job_id;
    moreJobs = listing.next !== null;
    jobsTotal = listing.total;
    jobsDue = Date.now() + POLL_MS * (Math.ceil(limit / PART) - 1) * 2;
  } catch (error) {
    // Without its store the server still has its runs.
    if (!(error instanceof Refused) || error.status === 401) throw error;
    jobsError = reason(error);
  }
}

function askForMoreJobs(hasMovedToEnd) {
  if (!isMoreWanted(hasMovedToEnd)) return;
  if ((queuePart !== "jobs" && queuePart !== "dead") || !moreJobs || jobs.length < jobLimit) return;
  jobLimit += jobLimit < PART ? JOBS : PART;
  pollSoon();
}

async function loadBreakers(signal) {
  const answer = await get(`/v1/jobs/breakers?limit=${PART}`);
  if (signal.aborted) return;
  areMoreBreakers = answer.next !== null;
  const order = { open: 0, half_open: 1, closed: 2 };
  breakers = answer.breakers.sort((one, other) => order[one.state] - order[other.state]);
  for (const breaker of breakers) breaker.line = `breaker ${breaker.key}`;
  areBreakersKnown = true;
}

document.addEventListener("visibilitychange", () => (document.hidden ? halt() : go()));

// Showing.

const wordsOf = new WeakMap();

function matching(items, words) {
  if (query.length === 0) return items;
  return items.filter((item) => {
    let text = wordsOf.get(item);
    if (text === undefined) wordsOf.set(item, text = words(item).toLowerCase());
    return query.every((word) => text.includes(word));
  });
}

/** The items of the section that is shown, the words that a search finds them by, and how many there are if not all are listed. */
function sectionItems() {
  switch (section) {
    case "running": return [[...running, ...queued], runWords, running.total + queued.total];
    case "queue":
      if (queuePart === "schedules") return [schedules, scheduleWords];
      return queuePart === "breakers" ? [breakers, breakerWords] : [jobs, jobWords, jobsTotal];
    case "contexts": {
      const kinds = { all: () => true, contexts: (one) => one.language !== "bash", sessions: (one) => one.language === "bash" };
      const shown = contexts.filter(kinds[contextKind]);
      // What is idle is below what is busy.
      return [[...shown.filter((one) => one.run_id !== null), ...shown.filter((one) => one.run_id === null)], contextWords];
    }
    case "sandboxes": return [sandboxes, sandboxWords];
    default: return [ended.runs, runWords, ended.total];
  }
}

function drawList() {
  const [items, words, total = items.length] = sectionItems();
  const shown = matching(items, words);
  lists[section].set(shown);
  const listed = `${counted(items.length)} of ${counted(total)}`;
  if (query.length > 0) say(at("matches"), `${counted(shown.length)} of ${total > items.length ? `the ${listed} listed` : counted(items.length)}`);
  else say(at("matches"), total > items.length ? `${listed} listed` : "");
}

function draw() {
  for (const id of ["lists", "detail", "tabs"]) show(at(id), true);
  const open = queues.reduce((sum, queue) => sum + queue.queued + queue.scheduled + queue.leased, 0);
  const dead = queues.reduce((sum, queue) => sum + queue.dead, 0);
  const shells = contexts.filter((context) => context.language === "bash").length;
  say(at("running-count"), queued.total ? `${counted(running.total)} + ${counted(queued.total)} queued` : counted(running.total ?? 0));
  say(at("queue-count"), dead ? `${counted(open)} + ${counted(dead)} dead` : counted(open));
  say(at("dead-count"), counted(dead));
  say(at("schedules-count"), areSchedulesKnown ? counted(schedules.length) : "");
  say(at("breakers-count"), areBreakersKnown ? `${counted(breakers.length)}${areMoreBreakers ? "+" : ""}` : "");
  say(at("contexts-count"), String(contexts.length));
  say(at("interpreters-count"), String(contexts.length - shells));
  say(at("sessions-count"), String(shells));
  say(at("sandboxes-count"), areSandboxesKnown ? counted(sandboxes.length) : "");
  say(at("ended-count"), counted(ended.total));
  show(at("nothing"), running.length + queued.length === 0);
  note("ended-note", ended.total === 0 ? "No run has ended yet." : "");
  say(at("contexts-note"), contexts.length ? "" : "No live interpreter and no live shell. POST /v1/contexts opens an interpreter, POST /v1/sessions a shell.");
  show(at("contexts-note"), contexts.length === 0);
  note("sandboxes-note", sandboxes.length || !areSandboxesKnown ? "" : "No sandbox. POST /v1/sandboxes, or sandtimer sandbox create, creates one.");
  note("jobs-note", jobsWords());
  drawQueues(queues);
  show(at("requeue-all"), dead > 0);
  explain();
  drawList();
  announce();
  drawChosen();
}

function note(id, text) {
  say(at(id), text);
  show(at(id), text !== "");
}

function jobsWords() {
  if (jobsError) return jobsError;
  if (queuePart === "breakers") {
    return breakers.length || !areBreakersKnown ? "" : "No breaker that jobs share has counted a failure. Jobs share those of breaker = { scope = \"store\" }.";
  }
  if (queuePart === "schedules") {
    return schedules.length || !areSchedulesKnown ? "" : "No schedule. PUT /v1/jobs/schedules/NAME, or sandtimer jobs schedule, stores one.";
  }
  if (jobs.length === 0) return queuePart === "dead" ? "No job is dead." : "No such job. POST /v1/jobs, or sandtimer jobs submit, submits one.";
  return "";
}

/** Says for those who do not see the lists what has ended. */
function announce() {
  const now = new Set(running.map((run) => run.run_id));
  const over = latest === null ? [] : ended.runs.slice(0, LATEST).filter((run) => latest.has(run.run_id));
  const [run] = over;
  if (run) say(at("told"), `Run ${run.run_id} has ended: ${ending(run.ending, run.exit_code)}${over.length > 1 ? `, and ${over.length - 1} more` : ""}.`);
  latest = now;
}

/** What to type, where nothing runs. */
function explain() {
  const bearer = sessionStorage.getItem(TOKEN) ? ' -H "Authorization: Bearer $TOKEN"' : "";
  say(at("example"), `curl -s${bearer} ${location.origin}/v1/runs -d '{"command": ["sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 2; done"], "wall_ms": 60000, "wait_ms": 0}'`);
}
