// Schedules: jobs that recur.

let schedules = [];
/** Whether the server has answered with the schedules since the page was opened. */
let areSchedulesKnown = false;

async function loadSchedules(signal) {
  const answer = await get("/v1/jobs/schedules");
  if (signal.aborted) return;
  schedules = answer.schedules;
  for (const schedule of schedules) schedule.line = `schedule ${schedule.name}`;
  areSchedulesKnown = true;
}

function recurrenceWords({ cron, time_zone: zone, every_ms: every }) {
  if (cron === undefined) return typeof every === "number" ? `every ${round(every)}` : `every ${every}`;
  return `${cron}${zone === undefined ? "" : ` in ${zone}`}`;
}

function nextMomentState({ spec, next_ms: next }) {
  if (spec.paused) return ["paused", "late"];
  if (next === null) return ["no further start", "late"];
  return `next ${until(next - Date.now())}`;
}

const JOB_STATES = { scheduled: "is scheduled", queued: "is queued", leased: "is running", ended: "has ended", dead: "is dead", cancelled: "was cancelled" };

function lastJobState({ last_job: job, last_state: state }) {
  if (job === null) return "no job yet";
  return `last job ${state === null ? "is not kept" : JOB_STATES[state] ?? state}`;
}

const scheduleFacts = (schedule) => [nextMomentState(schedule), recurrenceWords(schedule.spec), `queue ${schedule.queue}`, lastJobState(schedule)];

const skippedWords = (schedule) => (schedule.skipped === 0 ? null : some(schedule.skipped, "skipped start", "skipped starts"));

function drawSchedule(schedule, { text, line, wall, done, sentence }) {
  say(text, schedule.name);
  facts(line, ...scheduleFacts(schedule));
  show(wall, false);
  show(done, false);
  const submitted = some(schedule.submitted, "job", "jobs");
  say(sentence, schedule.error ?? [submitted, skippedWords(schedule)].filter(Boolean).join(", "));
}

const scheduleWords = (schedule) => `${schedule.name} ${schedule.queue} ${recurrenceWords(schedule.spec)} ${schedule.spec.paused ? "paused" : ""} ${schedule.error ?? ""} ${schedule.last_job ?? ""}`;

function drawChosenSchedule() {
  const schedule = schedules.find((one) => one.name === chosen.id);
  if (!schedule) {
    offer([]);
    facts(at("state"), areSchedulesKnown ? ["It is not there.", "late"] : null);
    return;
  }
  what(`${schedule.name}: ${specWords(schedule.spec.job ?? {})}`);
  facts(at("state"), ...scheduleFacts(schedule));
  say(at("verdict"), schedule.error ?? "");
  show(at("verdict"), schedule.error !== null);
  offer([
    schedule.last_state === null ? null : { id: "show-job", label: "Show its last job", act: async () => { open("job", schedule.last_job, chosen.line); return ""; } },
    schedule.spec.paused
      ? { id: "resume", label: "Resume", act: (name) => pauseSchedule(name, "resume") }
      : { id: "pause", label: "Pause…", question: `Pause schedule ${schedule.name}? It submits no jobs until it is resumed; those that run continue.`, act: (name) => pauseSchedule(name, "pause") },
    { id: "remove", label: "Remove…", ends: true, question: `Remove schedule ${schedule.name}? No more jobs are submitted for it; its jobs stay.`, act: removeSchedule },
  ]);
  panel("Times", { ...schedule, spec: schedule.spec.paused }, (shown) => {
    const list = made("dl", "");
    pairs(list, [
      ["Next", shown.spec ? "paused" : moment(shown.next_ms) ?? "none"], ["Last", moment(shown.last_ms)], ["Last job", shown.last_job],
      ["Jobs submitted", counted(shown.submitted)], ["Skipped starts", counted(shown.skipped)], ["Stored first", moment(shown.created_ms)],
    ]);
    return list;
  });
  panel("Specification", schedule.spec, (shown) => made("pre", "", cut(JSON.stringify(shown, null, 1))));
}

async function pauseSchedule(name, verb) {
  await post(`/v1/jobs/schedules/${encodeURIComponent(name)}/${verb}`, {});
  pollSoon();
  return verb === "pause" ? "It is paused." : "It is due at its next moment.";
}

async function removeSchedule(name) {
  await remove(`/v1/jobs/schedules/${encodeURIComponent(name)}`);
  schedules = schedules.filter((schedule) => schedule.name !== name);
  return "It is removed.";
}
