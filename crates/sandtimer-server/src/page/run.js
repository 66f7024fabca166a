// The chosen run.

/** How often the processes of the chosen run are looked at. */
const LOOK_MS = 2000;

/** What a list would say of a run that is in none, from the run itself. */
const summary = (run) => ({
  run_id: run.run_id, status: run.status, command: run.command, created_at_ms: run.created_at_ms, ended_at_ms: run.ended_at_ms,
  elapsed_ms: (run.ended_at_ms ?? Date.now()) - run.created_at_ms, wall_ms: run.effective?.wall_ms?.limit ?? null, wall_left_ms: null,
  ending: run.outcome?.ending ?? null, exit_code: run.outcome?.exit_code ?? null, ok: run.outcome?.ok ?? null, paused: false,
  queued_ms: run.outcome?.usage.queued_ms ?? null, spawn_ms: run.outcome?.usage.spawn_ms ?? null, context_id: run.context_id,
  progress: run.progress, waiting_for: null, sentence: run.outcome?.verdict?.sentence ?? null,
});

function drawChosenRun() {
  const run = runs.get(chosen.id) ?? chosen.summary;
  if (!run) return;
  const over = chosen.outcome !== null || run.status === "ended";
  what(command(run.command));
  facts(at("state"), ...states(run));
  drawBar(at("bar"), over ? null : run);
  const progress = over ? null : run.progress;
  drawProgress(at("done"), progress);
  show(at("done-text"), Boolean(progress));
  if (progress) say(at("done-text"), progressWords(progress));
  show(at("extend-form"), run.status === "running" && run.wall_ms !== null && !over);
  at("extend").disabled = chosen.busy !== null;
  drawLayers(runLayers(run, chosen.outcome, chosen.effective));
  if (over) {
    show(at("doing"), false);
    panel("Processes", null);
    offer([contextDeed(run), { id: "forget", label: "Forget…", ends: true, question: `Forget run ${chosen.id}? Its output and its outcome are deleted.`, act: forgetRun }]);
  } else offer(runDeeds(run));
}

/** Shows the context or session that executes a run, as long as it is there. */
function contextDeed(run) {
  const context = contexts.find((one) => one.context_id === run.context_id);
  if (!context) return null;
  const kind = context.language === "bash" ? "session" : "context";
  return { id: "show-context", label: `Show its ${kind}`, act: async () => { open(kind, context.context_id, chosen.line); return ""; } };
}

function runDeeds(run) {
  const name = `run ${run.run_id}`;
  const running = run.status === "running";
  return [
    contextDeed(run),
    { id: "kill", label: running ? "Kill…" : "Cancel…", ends: true, question: `${running ? "Kill" : "Cancel"} ${name}? ${running ? "All of its processes end." : "It does not begin."}`, act: killRun },
    running ? { id: "interrupt", label: "Interrupt…", question: `Interrupt ${name}, as Ctrl-C does?`, act: interruptRun } : null,
    running && !run.paused ? { id: "pause", label: "Pause…", question: `Pause ${name}? Its processes and its clock stop until it is resumed.`, act: (id) => pauseRun(id, "pause") } : null,
    running && run.paused ? { id: "resume", label: "Resume", act: (id) => pauseRun(id, "resume") } : null,
  ];
}

async function killRun(id) {
  // The answer to a kill that waits has all of the output; how it ended comes with the events.
  const run = await post(`/v1/runs/${id}/kill`, { reason: "killed on the page", wait_ms: 0 });
  return run.status === "ended" ? "It has ended." : "It was asked to end.";
}

async function interruptRun(id) {
  const context = contexts.find((one) => one.run_id === id);
  if (!context) {
    await post(`/v1/runs/${id}/signal`, { signal: "SIGINT" });
    return "SIGINT was sent to its processes.";
  }
  const { interrupted } = await post(`${home(context)}/interrupt`, {});
  return interrupted ? "It was interrupted." : "Nothing was being executed.";
}

async function pauseRun(id, verb) {
  const { paused } = await post(`/v1/runs/${id}/${verb}`, {});
  return paused ? "It is paused." : "It continues.";
}

async function forgetRun(id) {
  await remove(`/v1/runs/${id}`);
  dropEnded(id);
  return "Its record is removed.";
}

at("extend-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const by = Math.round(at("seconds").valueAsNumber * 1000);
  void act({ label: "Extend", act: async (id) => {
    const answer = await post(`/v1/runs/${id}/extend`, { by_ms: by });
    return answer.wall_left_ms === null ? "It has no wall limit now." : `${time(answer.wall_left_ms)} left now.`;
  } });
});

function drawLimits(effective) {
  chosen.effective = effective;
  const shown = Object.entries(effective ?? {}).filter(([, limit]) => limit !== null).map(([key, limit]) => {
    const amount = key.endsWith("_ms") ? round(limit.limit) : key.endsWith("_bytes") ? size(limit.limit) : String(limit.limit);
    return [key.replace(/_(ms|bytes)$/, "").replaceAll("_", " "), `${amount}, from ${limit.origin ?? SOURCES[limit.source] ?? limit.source}`];
  });
  pairs(at("limits"), shown.length ? shown : [["None", "no limit is set"]]);
  show(at("limited"), true);
}

function drawOutcome(outcome) {
  chosen.outcome = outcome;
  const { verdict, usage, tree } = outcome;
  const plain = `It ${outcome.ending === "exited" ? `exited with ${outcome.exit_code}` : ending(outcome.ending, outcome.exit_code)}${outcome.signal ? ` (${outcome.signal})` : ""}.`;
  const error = typeof outcome.error === "string" ? outcome.error : outcome.error?.message;
  say(at("verdict"), verdict?.sentence ?? (error ? `${plain} ${error}` : plain));
  at("verdict").classList.toggle("fine", outcome.ok);
  show(at("verdict"), true);
  const spent = verdict?.spent;
  const computing = usage.user_ms + usage.system_ms;
  pairs(at("time"), [
    ["In all", time(usage.wall_ms)],
    ["Computing (user)", time(usage.user_ms)],
    ["Computing (system)", time(usage.system_ms)],
    ["Not computing, at least", computing < usage.wall_ms ? time(usage.wall_ms - computing) : null],
    ["Ready, but no processor", usage.run_queue_ms === null ? null : time(usage.run_queue_ms)],
    ["Queued before", time(usage.queued_ms)],
    ["Being started", time(usage.spawn_ms)],
    ["Paused", spent ? time(spent.paused_ms) : null],
    ["Ended late by", verdict ? `${verdict.late_ms.toFixed(1)} ms` : null],
    ["Was waiting for", verdict?.waiting_for ?? null],
  ]);
  pairs(at("usage"), [
    ["Memory at most", size(usage.memory_peak_bytes)],
    ["Processes at most", String(usage.processes_peak)],
    ["Killed at the end", String(tree.killed)],
    ["Still alive", tree.survivors === null ? "not known yet" : String(tree.survivors)],
    ["Proof", tree.proof],
    ["State", outcome.state === "none" ? null : outcome.state.replaceAll("_", " ")],
    ["Isolation", `${outcome.isolation.tier}, ${outcome.isolation.kill}`],
  ]);
  show(at("spent"), true);
  drawResults(outcome);
  panel("Remarks", outcome.remarks.length ? outcome.remarks : null, (remarks) => table(["", ""], remarks.map(({ kind, message }) => [kind.replaceAll("_", " "), message])));
}

/** The place of a reader who has had all but the last of what there is: an event's id has positions in both streams. */
async function tail(view) {
  const end = (stream) => get(`/v1/runs/${view.id}/output?stream=${stream}&cursor=${Number.MAX_SAFE_INTEGER}`);
  const [out, error] = await Promise.all([end("stdout"), end("stderr")]);
  const from = (stream) => Math.max(0, stream.next_cursor - TAIL);
  if (from(out) + from(error) > 0 && chosen === view) mark(view, "Earlier output is not shown.");
  return `0-0-${from(out)}-${from(error)}`;
}

function takeRun(view, { name, data }) {
  switch (name) {
    case "started": drawLimits(data.effective); break;
    case "stdout": case "stderr": write(view, name, decoded(view, name, data)); break;
    case "lagged": mark(view, `${size(data.dropped)} of ${data.stream} were dropped.`); break;
    case "warning": mark(view, data.message); break;
    case "ended":
      view.over = true;
      say(at("answer"), "");
      drawOutcome(data.outcome);
      drawChosen();
      pollSoon();
      break;
  }
}

async function followRun(view, signal) {
  if (!runs.has(view.id)) {
    try {
      view.summary = summary(await get(`/v1/runs/${view.id}`));
      if (chosen === view) drawChosen();
    } catch { /* The events say it. */ }
  }
  void lookAtProcesses(view, signal);
  await readEvents(view, signal, `/v1/runs/${view.id}/events`, () => tail(view), (event) => takeRun(view, event));
}

/** What a run does now, for as long as it runs. */
async function lookAtProcesses(view, signal) {
  while (!signal.aborted && !view.over && chosen === view) {
    try {
      if ((runs.get(view.id) ?? view.summary)?.status !== "running") {
        await pause(SOON_MS * 5, signal);
        continue;
      }
      const seen = await get(`/v1/runs/${view.id}/processes`);
      if (signal.aborted || view.over || chosen !== view) return;
      drawProcesses(seen);
    } catch (error) {
      // It may have ended since.
      if (!(error instanceof Refused) || error.status !== 409) show(at("doing"), false);
    }
    await pause(LOOK_MS, signal);
  }
}

function drawProcesses({ sentence, processes, truncated }) {
  // How far it has come is above.
  say(at("doing"), sentence.split(" It is at ")[0]);
  show(at("doing"), true);
  const lines = processes.map((one) => ({
    name: `${"\u00a0\u00a0".repeat(one.depth)}${one.name}`, pid: one.pid, waits: WAITS[one.waiting_for] ?? one.waiting_for ?? "", cpu: time(one.cpu_ms),
    at: one.python?.[0]?.frames.map((frame) => `${frame.function} ${frame.file}:${frame.line}`)[0] ?? "",
  }));
  panel("Processes", lines, (shown) => {
    const around = table(["name", "PID", "does", "processor", "Python is in"], shown.map((one) => [one.name, String(one.pid), one.waits, one.cpu, one.at]));
    if (truncated) around.append(made("p", "soft", "There are more than these."));
    return around;
  });
}
