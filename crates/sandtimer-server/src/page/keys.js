// Sections, the search and the keys. The address says which section is shown and what is chosen, so that the browser's own
// keys for back and reload work.

const narrow = matchMedia("(max-width: 959px)");

const KEYS = [
  ["/", "search in the section"], ["1 to 5", "Running, Queue, Contexts and sessions, Sandboxes, Ended"], ["↑ ↓ or k j", "one line up or down"],
  ["Page Up, Page Down, Home, End", "further in the list"], ["Enter", "show the line"], ["Esc", "back to the list; in the search, empty it"],
  ["x", "kill, cancel, close, delete or remove what is shown (asks first)"], ["p", "pause or resume it"], ["i", "interrupt it (asks first)"],
  ["e", "extend its wall limit"], ["r", "retry it (asks first)"], ["o", "to its output"], ["?", "these keys"],
];

const address = (kind, id) => `#${section}${kind ? `/${kind}/${encodeURIComponent(id)}` : ""}`;

/** Shows a thing and, for those who use keys, goes to it. */
function opened(kind, id, keys) {
  open(kind, id, id);
  if (keys || narrow.matches) at("title").focus();
}

function open(kind, id, line) {
  if (chosen?.kind !== kind || chosen.id !== id) choose(kind, id, { line });
  if (location.hash !== address(kind, id)) history.pushState(null, "", address(kind, id));
  document.querySelector("main").classList.add("opened");
}

function back() {
  if (narrow.matches) {
    history.pushState(null, "", address());
    document.querySelector("main").classList.remove("opened");
  }
  lists[section].focusActive() || at(`tab-${section}`).focus();
}

function showSection(name) {
  section = name;
  for (const one of SECTIONS) {
    const shown = one === name;
    const tab = at(`tab-${one}`);
    tab.setAttribute("aria-selected", String(shown));
    tab.tabIndex = shown ? 0 : -1;
    show(at(`panel-${one}`), shown);
  }
  if (polling && !at("lists").hidden) drawList();
  pollSoon();
}

function chooseSection(name) {
  if (section !== name) at("search").value = "";
  if (section !== name) query = [];
  showSection(name);
  const kept = chosen && !narrow.matches;
  history.pushState(null, "", kept ? address(chosen.kind, chosen.id) : address());
  if (narrow.matches) document.querySelector("main").classList.remove("opened");
}

/** Ids of the server's things: nothing else of an address becomes part of a request. */
const ID = /^[A-Za-z0-9_-]{1,64}$/;

/** What has a name, which is looked up in a list, and is not part of a request unless it is there. */
const NAMED_KINDS = new Set(["breaker", "schedule"]);

/** Shows what the address says. */
function route() {
  const [name, kind, id] = location.hash.slice(1).split("/");
  showSection(SECTIONS.includes(name) ? name : "running");
  const known = Object.hasOwn(VIEWS, kind ?? "") && id;
  document.querySelector("main").classList.toggle("opened", Boolean(known));
  let wanted = null;
  try {
    wanted = known ? decodeURIComponent(id) : null;
  } catch { /* Not an address of this page. */ }
  if (name === "queue" && NAMED_KINDS.has(kind) && queuePart !== `${kind}s`) choosePart(`${kind}s`);
  if (wanted === null || (!NAMED_KINDS.has(kind) && !ID.test(wanted))) unchoose();
  else if (chosen?.kind !== kind || chosen.id !== wanted) choose(kind, wanted, { line: NAMED_KINDS.has(kind) ? `${kind} ${wanted}` : wanted });
}

addEventListener("popstate", route);

at("tabs").addEventListener("click", ({ target }) => {
  const tab = target.closest("button");
  if (tab) chooseSection(tab.id.slice("tab-".length));
});
at("tabs").addEventListener("keydown", (event) => {
  const here = SECTIONS.indexOf(section);
  const moves = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: SECTIONS.length - 1 };
  if (event.key in moves) {
    event.preventDefault();
    chooseSection(SECTIONS[(moves[event.key] + SECTIONS.length) % SECTIONS.length]);
    at(`tab-${section}`).focus();
  } else if (event.key === "ArrowDown" && lists[section].focusActive()) event.preventDefault();
});

at("search").addEventListener("input", () => {
  query = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  lists[section].scroll(0);
  drawList();
});
at("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    event.preventDefault();
    if (at("search").value === "") lists[section].focusActive();
    at("search").value = "";
    at("search").dispatchEvent(new Event("input"));
  } else if (event.key === "ArrowDown" || event.key === "Enter") {
    if (lists[section].focus(0)) event.preventDefault();
  }
});

function pressOne(buttons, pressed) {
  for (const button of buttons) button.setAttribute("aria-pressed", String(button === pressed));
}

function choosePart(part) {
  const button = at(`queue-${part}`);
  queuePart = part;
  if (part === "jobs" || part === "dead") {
    jobLimit = JOBS;
    jobs = [];
    jobsTotal = 0;
  }
  pressOne(button.parentElement.querySelectorAll("button[aria-pressed]"), button);
  show(at("job-state"), part === "jobs");
  lists.queue.scroll(0);
  showSection("queue");
}

for (const part of ["jobs", "dead", "schedules", "breakers"]) at(`queue-${part}`).addEventListener("click", () => choosePart(part));
for (const button of document.querySelectorAll("[data-kind]")) {
  button.addEventListener("click", () => {
    contextKind = button.dataset.kind;
    pressOne(document.querySelectorAll("[data-kind]"), button);
    drawList();
  });
}
at("job-state").addEventListener("change", () => {
  jobLimit = JOBS;
  lists.queue.scroll(0);
  pollSoon();
});
at("purge").addEventListener("click", () => void purgeJobs());
at("requeue-all").addEventListener("click", () => void requeueDead());
at("back").addEventListener("click", back);
at("help-button").addEventListener("click", () => at("help").showModal());
at("help-close").addEventListener("click", () => at("help").close());

const press = (...ids) => {
  const button = ids.map((id) => at(id)).find((one) => one && !one.disabled);
  button?.click();
  return Boolean(button);
};

const DEEDS = {
  x: () => press("kill", "cancel", "close", "delete", "forget", "remove"), p: () => press("pause", "resume"), i: () => press("interrupt"), r: () => press("retry"),
  e: () => { if (at("extend-form").hidden) return false; at("seconds").focus(); at("seconds").select(); return true; },
  o: () => { if (at("written").hidden || !chosen) return false; at("output").focus(); return true; },
  "/": () => { at("search").focus(); at("search").select(); return true; },
  "?": () => { at("help").showModal(); return true; },
};
SECTIONS.forEach((name, index) => { DEEDS[index + 1] = () => { chooseSection(name); requestAnimationFrame(() => lists[name].focusActive() || at(`tab-${name}`).focus()); return true; }; });

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || locked || at("lists").hidden) return;
  if (document.querySelector("dialog[open]")) return;
  const { target } = event;
  const typing = target.closest?.("input, select, textarea");
  if (event.key === "Escape" && at("detail").contains(target)) {
    event.preventDefault();
    back();
  } else if (!typing && Object.hasOwn(DEEDS, event.key) && DEEDS[event.key]()) event.preventDefault();
});

at("keys").append(...KEYS.map(([keys, does]) => {
  const row = made("tr", "");
  const cell = row.insertCell();
  cell.append(made("kbd", "", keys));
  row.insertCell().textContent = does;
  return row;
}));

say(at("title"), "Nothing is chosen");
route();
go();
