// The chosen run, job, context, sandbox or breaker: what every kind of them has.

/** Bytes of each stream that a chosen run's output begins with. */
const TAIL = 64 * 1024;
const SOON_MS = 50;

/** What is chosen: `kind`, `id`, the `line` of its list, and what its view has read so far. */
let chosen = null;
let following = null;

const PARTS = ["bar", "done", "done-text", "doing", "extend-form", "verdict", "timeline", "spent", "limited"];
const TEXTS = ["what", "state", "deeds", "answer", "verdict", "strip", "layers", "results", "output", "more", "time", "usage", "limits", "following"];

/** Shows a thing. Its name is what is shown until the server has said more. */
function choose(kind, id, { line = id, name = "" } = {}) {
  following?.abort();
  chosen = { kind, id, line, screens: {}, decoders: {}, length: 0, place: null, effective: null, outcome: null, panels: new Map(), busy: null };
  say(at("title"), `${{ run: "Run", job: "Job", context: "Context", session: "Session", breaker: "Breaker", schedule: "Schedule", sandbox: "Sandbox" }[kind]} ${id}`);
  for (const part of TEXTS) at(part).replaceChildren();
  for (const part of PARTS) show(at(part), false);
  show(at("no-choice"), false);
  show(at("chosen"), true);
  show(at("written"), kind === "run" || kind === "job");
  say(at("output-name"), kind === "job" ? "Log" : "Output");
  say(at("what"), name);
  show(at("what"), name !== "");
  at("detail").scrollTop = 0;
  isDown = true;
  for (const rows of Object.values(lists)) rows.plan(true);
  drawChosen();
  follow();
}

function unchoose() {
  following?.abort();
  following = null;
  chosen = null;
  say(at("title"), "Nothing is chosen");
  show(at("no-choice"), true);
  show(at("chosen"), false);
  // What is not shown is not to be pressed by its key.
  at("deeds").replaceChildren();
  for (const rows of Object.values(lists)) rows.plan(true);
}

/** Draws what the latest answers say of the chosen thing. */
function drawChosen() {
  if (!chosen) return;
  VIEWS[chosen.kind].draw();
}

function follow() {
  following?.abort();
  following = new AbortController();
  void VIEWS[chosen.kind].follow(chosen, following.signal);
}

function what(text) {
  say(at("what"), text);
  show(at("what"), text !== "");
}

// Actions.

/** Offers actions on the chosen thing: `id`, `label`, `act`, and whether it `ends` something. The buttons stay while they are the same. */
function offer(deeds) {
  const given = deeds.filter((deed) => deed);
  const parent = at("deeds");
  const there = [...parent.children].map((button) => button.id).join();
  if (there !== given.map((deed) => deed.id).join()) {
    const had = document.activeElement?.parentElement === parent;
    parent.replaceChildren(...given.map((deed) => {
      const button = made("button", deed.ends ? "deed kill" : "deed", deed.label);
      button.type = "button";
      button.id = deed.id;
      return button;
    }));
    if (had) at("title").focus();
  }
  for (const deed of given) {
    const button = at(deed.id);
    button.onclick = () => void act(deed);
    button.disabled = chosen.busy !== null;
  }
}

/** Asks where that is needed, does it, and shows what the server answered. */
async function act({ question, label, act: done }) {
  const subject = chosen;
  if (!subject || subject.busy) return;
  if (question && !(await confirmed(question, label.replace("…", "")))) return;
  if (chosen !== subject) return;
  subject.busy = label;
  drawChosen();
  say(at("answer"), "Asking the server…");
  let text;
  try {
    text = await done(subject.id);
  } catch (error) {
    text = reason(error);
  }
  subject.busy = null;
  pollSoon();
  if (chosen !== subject) return;
  say(at("answer"), text);
  drawChosen();
}

/** A part of the view with a title of its own, made again only where what it shows has changed. */
function panel(name, data, build) {
  const { panels } = chosen;
  const text = data === null ? null : JSON.stringify(data);
  const known = panels.get(name);
  if (known?.text === text) return;
  const around = known?.around ?? at("more").appendChild(made("div", ""));
  panels.set(name, { text, around });
  around.replaceChildren(...(data === null ? [] : [made("h3", "", name), build(data)]));
}

/** Reads events until the last, and resumes after the last one received when a connection breaks. */
async function readEvents(view, signal, path, begin, take) {
  let failed = 0;
  const tell = (text) => { if (chosen === view) say(at("following"), text); };
  while (!signal.aborted && !view.over) {
    try {
      tell("");
      view.place ??= await begin();
      const headers = view.place === "" ? {} : { "Last-Event-ID": view.place };
      const answer = await ask(path, { headers, signal });
      if (answer.status === 204) view.over = true;
      else {
        tell("live");
        await events(answer.body, signal, (event) => {
          failed = 0;
          if (chosen !== view) return;
          view.place = event.id;
          take(event);
        });
      }
    } catch (error) {
      if (signal.aborted || locked) return;
      if (error instanceof Refused && error.status === 404) return tell("no longer kept by the server");
    }
    if (signal.aborted || view.over) break;
    tell("interrupted; continues as soon as the server answers");
    await pause(failed === 0 ? SOON_MS : Math.min(LONGEST_PAUSE_MS, POLL_MS * 2 ** failed), signal);
    failed += 1;
  }
  if (!signal.aborted) tell(view.length ? "complete" : "complete: there is none");
}
