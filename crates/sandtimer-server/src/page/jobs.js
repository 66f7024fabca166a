// The chosen job, context, session or breaker, and what the queue's own buttons do.

const JOB_LOOK_MS = 2000;
const OPEN_JOBS = ["scheduled", "queued", "leased"];

function drawChosenJob() {
  const listed = jobs.find((job) => job.job_id === chosen.id);
  const whole = chosen.job;
  const job = listed && (!whole || listed.state !== whole.state || listed.deliveries !== whole.deliveries) ? { ...whole, ...listed } : whole ?? listed;
  if (!job) return;
  facts(at("state"), ...jobFacts(job));
  drawLayers(jobLayers({ result: null, ...job }));
  const open = OPEN_JOBS.includes(job.state);
  const again = job.state === "dead" || job.state === "cancelled" || (job.state === "ended" && !job.ok);
  offer([
    open ? { id: "cancel", label: "Cancel…", ends: true, question: `Cancel job ${job.name} (${job.job_id})? What it has started ends.`, act: cancelJob } : null,
    again ? { id: "retry", label: "Retry…", question: `Queue job ${job.name} (${job.job_id}) again? Its deadline counts from now.`, act: retryJob } : null,
  ]);
  if (whole) drawJobParts(whole);
}

async function cancelJob(id) {
  const answer = await post(`/v1/jobs/${id}/cancel`, { reason: "cancelled on the page", wait_ms: 0 });
  return OPEN_JOBS.includes(answer.state) ? "Its worker was asked to end it." : `It is ${answer.state}.`;
}

async function retryJob(id) {
  const answer = await post(`/v1/jobs/${id}/retry`, {});
  if (chosen?.id === id) {
    // Its log and its result begin again.
    choose("job", id, { line: chosen.line });
    say(at("answer"), `It is ${answer.state} again.`);
  }
  return `It is ${answer.state} again.`;
}

/** Why no worker can lease a job. */
function blockerWords(blocker) {
  const { key, queue, at_ms: then } = blocker;
  const start = then === null || then === undefined ? "" : `; the next start is at ${moment(then)}`;
  switch (blocker.reason) {
    case "queue_paused": return `Its queue ${queue} is paused.`;
    case "jobs": {
      const more = blocker.count - blocker.ids.length;
      return `It waits for the end of ${blocker.ids.join(", ")}${more > 0 ? ` and ${counted(more)} more` : ""}.`;
    }
    case "not_before": return `It starts at ${moment(then)} at the earliest.`;
    case "rate": return `Its rate key ${key} is used up${start}.`;
    case "concurrency": return `Its concurrency key ${key} is in use.`;
    case "no_handler": return `It needs a worker with the ${blocker.handlers.length === 1 ? "handler" : "handlers"} ${blocker.handlers.map((name) => `“${name}”`).join(" and ")}; no live worker of its queue has ${blocker.handlers.length === 1 ? "it" : "all of them"}.`;
    case "memory": return `It needs a worker with ${size(blocker.bytes)} of memory; the largest live one has ${size(blocker.largest_bytes)}.`;
    case "no_worker": return `No live worker takes jobs from queue ${queue}.`;
    case "unreadable_spec": return `It waits for a worker that can read its spec: ${blocker.worker} of version ${blocker.version} cannot (${blocker.field}: ${blocker.problem}).`;
    default: return blocker.reason;
  }
}

const specWords = (spec) => spec.command ? command(spec.command) : spec.code ?? (spec.steps ? `steps: ${spec.steps.map((step) => step.name).join(", ")}` : spec.loop ? "a loop of a driver and its actions" : "");

function drawJobParts(job) {
  const { result, webhook, spec } = job;
  what(`${job.name}: ${specWords(spec)}`);
  const sentence = result?.verdict?.sentence ?? job.error ?? (job.ok ? "It succeeded." : job.cancel);
  say(at("verdict"), sentence ?? "");
  show(at("verdict"), Boolean(sentence));
  at("verdict").classList.toggle("fine", job.ok === true);
  if (result?.outcome && !chosen.outcome) drawResults(chosen.outcome = { error: null, ...result.outcome });
  say(at("doing"), job.blocked_by.map(blockerWords).join(" "));
  show(at("doing"), job.blocked_by.length > 0);
  const ok = (value) => (value === null ? "not begun" : value ? "succeeded" : "failed");
  const filled = (list) => (list && list.length > 0 ? list : null);
  panel("Steps", filled(result?.steps), (steps) => table(["step", "", ""], steps.map((step) => [step.name, ok(step.ok), step.degraded ? "by a fallback" : ""])));
  panel("Calls", filled(result?.calls), (calls) => table(["call", "", "attempts and pauses", "why it failed"], calls.map((call) => [call.name, ok(call.ok), call.spent.map(spentWords).join(", "), call.said ?? ""])));
  panel("Breakers", filled(result?.breakers), (breakers) => table(["breaker", "state", "last failure"], breakers.map((one) => [one.key, breakerFacts(one).filter(Boolean).map((fact) => (Array.isArray(fact) ? fact[0] : fact)).join(", "), one.said.at(-1) ?? ""])));
  panel("Value", result?.value ?? null, (value) => made("pre", "", cut(JSON.stringify(value, null, 1))));
  panel("Files", filled(result?.files), (files) => table(["file", "size", ""], files.map((file) => [file.name, size(file.bytes), saver(job.job_id, file.name)])));
  panel("Files that are not kept", filled(result?.files_refused), (files) => table(["file", "reason"], files.map((file) => [file.name, file.reason])));
  panel("Earlier deliveries", filled(job.earlier), (earlier) => table(["result", "error"], earlier.map((one) => [one.status, one.error ?? ""])));
  panel("Webhook", webhook, (hook) => table(["to", "attempts", ""], [[hook.url, String(hook.attempts), webhookWords(hook)]]));
  panel("Times", [job.submitted_ms, job.due_ms, job.leased_ms, job.ended_ms, job.deadline_ms, job.deliveries, job.worker], ([submitted, due, leased, ended, deadline, deliveries, worker]) => {
    const list = made("dl", "");
    pairs(list, [
      ["Submitted", moment(submitted)], ["Earliest start", due > submitted ? moment(due) : null], ["Begun last", moment(leased)],
      ["Ended", moment(ended)], ["Deadline", moment(deadline)], ["Deliveries", deliveries], ["Worker", worker],
    ]);
    return list;
  });
  panel("Specification", spec, (shown) => made("pre", "", cut(JSON.stringify(shown, null, 1))));
}

const spentWords = (one) => (one.spent_on === "attempt" ? `${one.ok ? "" : "failed "}${time(one.ms)}` : one.spent_on === "backoff" ? `pause ${time(one.ms)}` : String(one.spent_on).replaceAll("_", " "));

function webhookWords(hook) {
  if (hook.delivered_ms !== null) return `delivered ${moment(hook.delivered_ms)}`;
  return `${hook.error ?? "not delivered yet"}${hook.due_ms === null ? "" : `; tried again ${moment(hook.due_ms)}`}`;
}

/** A button that saves one of a job's files. */
function saver(id, name) {
  const button = made("button", "deed small", "Save");
  button.type = "button";
  button.setAttribute("aria-label", `Save ${name}`);
  button.addEventListener("click", async () => {
    try {
      const answer = await ask(`/v1/jobs/${id}/files/${name.split("/").map(encodeURIComponent).join("/")}`);
      const link = made("a", "");
      link.href = URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: "application/octet-stream" }));
      link.download = name.split("/").at(-1);
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      say(at("answer"), reason(error));
    }
  });
  return button;
}

async function followJob(view, signal) {
  void lookAtJob(view, signal);
  await readEvents(view, signal, `/v1/jobs/${view.id}/events`, async () => "", ({ name, data }) => {
    if (name === "log") write(view, "stdout", decoded(view, "stdout", data));
    if (name !== "ended") return;
    view.over = true;
    void refreshJob(view);
    pollSoon();
  });
}

async function refreshJob(view) {
  const job = await get(`/v1/jobs/${view.id}`);
  if (chosen !== view) return;
  view.job = job;
  drawChosen();
}

/** Asks about a job while it can change: until its end, and until its webhook is delivered. */
async function lookAtJob(view, signal) {
  while (!signal.aborted && chosen === view) {
    try {
      await refreshJob(view);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return say(at("answer"), reason(error));
    }
    if (view.job && !OPEN_JOBS.includes(view.job.state) && (view.job.webhook?.due_ms ?? null) === null) return;
    await pause(JOB_LOOK_MS, signal);
  }
}

// Contexts and sessions.

const home = (context) => `/v1/${context.language === "bash" ? "sessions" : "contexts"}/${context.context_id}`;

function drawChosenContext() {
  const context = contexts.find((one) => one.context_id === chosen.id);
  if (!context) {
    offer([]);
    facts(at("state"), chosen.seen ? ["It has ended.", "late"] : "It is not there.");
    return;
  }
  chosen.seen = true;
  const run = runs.get(context.run_id);
  const kind = context.language === "bash" ? "session" : "context";
  what(run ? command(run.command) : "");
  facts(at("state"), ...contextFacts(context, run));
  drawBar(at("bar"), run);
  drawProgress(at("done"), run?.progress);
  show(at("done-text"), Boolean(run?.progress));
  if (run?.progress) say(at("done-text"), progressWords(run.progress));
  say(at("doing"), context.waiting ? `${some(context.waiting, "cell waits", "cells wait")} for a turn; the section Running lists queued cells.` : "");
  show(at("doing"), context.waiting > 0);
  const name = `${kind} ${context.context_id}`;
  offer([
    context.run_id ? { id: "show-run", label: "Show what it runs", act: async () => { open("run", context.run_id, chosen.line); return ""; } } : null,
    context.run_id ? { id: "interrupt", label: "Interrupt…", question: `Interrupt what ${name} executes, as Ctrl-C does?`, act: () => interruptRun(context.run_id) } : null,
    context.can_undo && !context.run_id ? { id: "undo", label: "Undo…", question: `Return ${name} to its state before the last run?`, act: async () => { await post(`${home(context)}/undo`, {}); return "It is as it was before its last run."; } } : null,
    { id: "close", label: "Close…", ends: true, question: `Close ${name}? Its state is lost, and what it executes is cancelled.`, act: async () => { await remove(home(context)); return "It is closed."; } },
  ]);
  const more = { ...context, idle_left_ms: null, run_id: null, waiting: null, executions: null, status: null };
  panel("What it is", more, (shown) => {
    const list = made("dl", "");
    pairs(list, [
      ["Language", shown.language], ["Opened", moment(shown.created_at_ms)], ["Unused at most", shown.idle_ms === null ? "without end" : round(shown.idle_ms)],
      ["Workspace", shown.workspace ?? "its own"], ["Network", shown.network ? "the host's" : "none"],
      ["Checkpoint", shown.checkpoint ? "yes: a timeout takes back its cell only" : shown.no_checkpoint_because ?? "none"], ["Can undo", shown.can_undo ? "yes" : "no"],
      ["Warnings", shown.warnings.length ? shown.warnings.join(" ") : null],
    ]);
    return list;
  });
}

function drawChosenBreaker() {
  const breaker = breakers.find((one) => one.key === chosen.id);
  if (!breaker) {
    offer([]);
    facts(at("state"), areBreakersKnown ? [areMoreBreakers ? "This breaker is not among those that are listed." : "This breaker is no longer stored.", "late"] : null);
    return;
  }
  facts(at("state"), ...breakerFacts(breaker));
  const { probe_of: id } = breaker;
  offer([id === null ? null : { id: "show-job", label: "Show the job of its probe", act: async () => { open("job", id, chosen.line); return ""; } }]);
  panel("Latest failures", breaker.said.length ? breaker.said : null, (said) => table([""], said.map((line) => [line])));
}

// The queue as a whole.

const queueRows = new Map();

function drawQueues(queues) {
  const around = at("queues");
  show(around, queues.length > 0);
  if (!around.firstElementChild) around.append(...table(["queue", "queued", "scheduled", "running", "dead", "oldest waits", ""], []).children);
  const body = around.querySelector("tbody");
  const names = new Set(queues.map(({ queue }) => queue));
  for (const [name, row] of queueRows) {
    if (names.has(name)) continue;
    row.remove();
    queueRows.delete(name);
  }
  for (const queue of queues) {
    const row = queueRows.get(queue.queue) ?? newQueue(body, queue.queue);
    const { cells } = row;
    const oldest = queue.oldest_ms === null ? "" : time(queue.oldest_ms);
    [queue.queue, queue.queued, queue.scheduled, queue.leased, queue.dead, oldest].forEach((value, index) => say(cells[index], String(value)));
    const [pausing, requeue] = cells[6].children;
    say(pausing, queue.paused ? "Resume" : "Pause…");
    pausing.setAttribute("aria-label", `${queue.paused ? "Resume" : "Pause"} queue ${queue.queue}`);
    pausing.onclick = () => void (queue.paused ? resumeQueue(queue.queue) : pauseQueue(queue.queue));
    show(requeue, queue.dead > 0);
    row.className = queue.paused ? "late" : "";
  }
}

function newQueue(body, name) {
  const row = body.insertRow();
  row.dataset.queue = name;
  for (let cell = 0; cell < 7; cell += 1) row.insertCell().className = cell > 0 ? "number" : "";
  const requeue = made("button", "deed small", "Requeue…");
  requeue.setAttribute("aria-label", `Requeue dead jobs of queue ${name}`);
  requeue.onclick = () => void requeueDead(name);
  row.cells[6].append(made("button", "deed small"), " ", requeue);
  for (const button of row.cells[6].children) button.type = "button";
  queueRows.set(name, row);
  return row;
}

/** Does something to the queue, and says what came of it. */
async function toQueue(done) {
  say(at("queue-answer"), "Asking the server…");
  let text;
  try {
    text = await done();
  } catch (error) {
    text = reason(error);
  }
  say(at("queue-answer"), text);
  pollSoon();
}

async function pauseQueue(queue) {
  if (!(await confirmed(`Pause queue ${queue}? It hands out no more jobs; those that run continue.`, "Pause"))) return;
  await toQueue(async () => { await post("/v1/jobs/pause", { queue }); return `Queue ${queue} is paused.`; });
}

const resumeQueue = (queue) => toQueue(async () => { await post("/v1/jobs/resume", { queue }); return `Queue ${queue} continues.`; });

async function requeueDead(queue) {
  if (!(await confirmed(`Queue ${queue === undefined ? "all dead jobs" : `the dead jobs of queue ${queue}`} again?`, "Requeue"))) return;
  await toQueue(async () => {
    const { requeued } = await post("/v1/jobs/requeue", queue === undefined ? {} : { queue });
    return `${some(requeued, "job is", "jobs are")} queued again.`;
  });
}

function choice(label, id, options) {
  const around = made("p", "");
  const select = made("select", "");
  select.id = id;
  for (const [value, text] of options) select.append(Object.assign(made("option", "", text), { value }));
  around.append(Object.assign(made("label", "", `${label} `), { htmlFor: id }), select);
  return around;
}

async function purgeJobs() {
  const names = [...new Set([...queues.map(({ queue }) => queue), ...jobs.map(({ queue }) => queue)])].sort();
  const state = choice("State", "purge-state", [["ended", "succeeded and failed"], ["ok", "succeeded"], ["failed", "failed"], ["cancelled", "cancelled"], ["dead", "dead"], ["", "all of these"]]);
  const queue = choice("Queue", "purge-queue", [["", "all queues"], ...names.map((name) => [name, name])]);
  if (!(await confirmed("Forget jobs that have ended? Their logs, results and files are deleted.", "Purge", [state, queue]))) return;
  const wanted = Object.fromEntries([["state", state.querySelector("select").value], ["queue", queue.querySelector("select").value]].filter(([, value]) => value !== ""));
  await toQueue(async () => {
    const { purged } = await post("/v1/jobs/purge", wanted);
    return `${some(purged, "job is", "jobs are")} forgotten.`;
  });
}
