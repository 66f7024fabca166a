// Results of cells: values, tables, figures. A figure is an image out of its data. Of HTML, elements of a short list are made
// again, without any of their attributes but two numbers; nothing of it is ever parsed as markup by the browser.

const MAX_HTML = 512 * 1024;
const MAX_ELEMENTS = 20000;
const MAX_DEPTH = 40;
const MAX_RESULTS = 50;
const MAX_TEXT = 64 * 1024;

const ELEMENTS = new Set(("b br caption code dd del div dl dt em h1 h2 h3 h4 h5 h6 hr i ins kbd li mark ol p pre s samp small span strong sub sup "
  + "table tbody td tfoot th thead tr u ul var").split(" "));
/** What is inside of these is not for people. */
const SILENT = new Set("iframe math noembed noframes noscript object script select style svg template textarea title xmp".split(" "));
const VOID = new Set(["br", "hr"]);
/** An element that begins ends these, where they are open, up to their table or list. */
const ENDS = { td: ["td", "th"], th: ["td", "th"], tr: ["td", "th", "tr"], tbody: ["td", "th", "tr", "thead", "tbody"], tfoot: ["td", "th", "tr", "tbody"], li: ["li"], dt: ["dt", "dd"], dd: ["dt", "dd"], p: ["p"] };
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–", times: "×", middot: "·" };

const unescaped = (text) => text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));/g, (whole, decimal, hex, name) => {
  if (name) return Object.hasOwn(NAMED, name) ? NAMED[name] : whole;
  const point = decimal ? Number(decimal) : Number.parseInt(hex, 16);
  return point > 0 && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff) ? String.fromCodePoint(point) : "\ufffd";
});

/** Where a tag ends that begins at `start`, quotes regarded; -1 if it does not. */
function tagEnd(html, start) {
  let quote = "";
  for (let index = start; index < html.length; index += 1) {
    const letter = html[index];
    if (quote) {
      if (letter === quote) quote = "";
    } else if (letter === '"' || letter === "'") quote = letter;
    else if (letter === ">") return index;
  }
  return -1;
}

/** Takes HTML apart: `text`, `open` and `close`, each with its words. Its time grows with its length, whatever it is. */
function* htmlTokens(html) {
  let place = 0;
  while (place < html.length) {
    const next = html.indexOf("<", place);
    if (next !== place) yield { text: html.slice(place, next < 0 ? html.length : next) };
    if (next < 0) return;
    if (html.startsWith("<!--", next)) {
      const end = html.indexOf("-->", next + 4);
      if (end < 0) return;
      place = end + 3;
      continue;
    }
    const name = /^<(\/?)([a-zA-Z][a-zA-Z0-9]{0,15})/.exec(html.slice(next, next + 20));
    if (!name && !/^<[!?]/.test(html.slice(next, next + 2))) {
      yield { text: "<" };
      place = next + 1;
      continue;
    }
    const end = tagEnd(html, next);
    if (end < 0) return;
    if (name) yield { [name[1] ? "close" : "open"]: name[2].toLowerCase(), words: html.slice(next + name[0].length, end) };
    place = end + 1;
  }
}

function safeElement(name, words) {
  const node = document.createElement(name);
  if (name !== "td" && name !== "th") return node;
  for (const span of ["colspan", "rowspan"]) {
    const number = new RegExp(`\\b${span}\\s{0,4}=\\s{0,4}["']?(\\d{1,3})\\b`, "i").exec(words.slice(0, 400))?.[1];
    if (number > 1) node.setAttribute(span, number);
  }
  return node;
}

/** HTML as elements of the short list. */
function safeHtml(html) {
  const root = made("div", "wide");
  const open = [root];
  let elements = 0;
  let silent = null;
  const close = (index) => { open.length = Math.max(1, index); };
  for (const { text, open: opened, close: closed, words } of htmlTokens(html.slice(0, MAX_HTML))) {
    if (elements > MAX_ELEMENTS) break;
    if (silent) {
      if (closed === silent) silent = null;
    } else if (text !== undefined) open.at(-1).append(unescaped(text));
    else if (closed) {
      const index = open.findLastIndex((node) => node.localName === closed);
      if (index > 0) close(index);
    } else if (SILENT.has(opened)) silent = opened;
    else if (ELEMENTS.has(opened)) {
      for (const ended of ENDS[opened] ?? []) {
        const index = open.findLastIndex((node) => node.localName === ended);
        const around = open.findLastIndex((node) => ["table", "ul", "ol", "dl", "div"].includes(node.localName));
        if (index > around) close(index);
      }
      elements += 1;
      const node = safeElement(opened, words);
      open.at(-1).append(node);
      if (!VOID.has(opened) && open.length < MAX_DEPTH) open.push(node);
    }
  }
  if (html.length > MAX_HTML || elements > MAX_ELEMENTS) root.append(made("p", "soft", "The rest is too large for this page."));
  return root;
}

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const cut = (text) => (text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n… and ${size(text.length - MAX_TEXT)} more` : text);

function image(kind, data) {
  const node = made("img", "");
  node.alt = `Figure (${kind})`;
  node.src = `data:${kind};base64,${data}`;
  return node;
}

/** The best of the forms that a result has. */
function resultNode(forms) {
  const words = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));
  for (const kind of IMAGES) {
    if (typeof forms[kind] === "string") return image(kind, forms[kind].replace(/[^A-Za-z0-9+/=]/g, ""));
  }
  const svg = forms["image/svg+xml"];
  // As an image it executes nothing and fetches nothing.
  if (typeof svg === "string") return image("image/svg+xml", base64(svg));
  if (typeof forms["text/html"] === "string") return safeHtml(forms["text/html"]);
  for (const kind of ["text/markdown", "text/latex", "text/plain", "application/json"]) {
    if (forms[kind] !== undefined) return made("pre", "", cut(words(forms[kind])));
  }
  return made("pre", "", `It has the forms ${Object.keys(forms).join(", ")}, which this page does not show.`);
}

function base64(text) {
  let letters = "";
  for (const byte of new TextEncoder().encode(text)) letters += String.fromCharCode(byte);
  return btoa(letters);
}

function drawResults(outcome) {
  const nodes = [];
  const { error, results, value } = outcome;
  if (results.length > 0) nodes.push(made("h3", "", "Results"));
  for (const forms of results.slice(0, MAX_RESULTS)) {
    const around = made("div", "result");
    around.append(resultNode(forms));
    nodes.push(around);
  }
  if (results.length > MAX_RESULTS) nodes.push(made("p", "soft", `${results.length - MAX_RESULTS} more results are not shown.`));
  if (results.length === 0 && value !== null) nodes.push(made("h3", "", "Value"), made("pre", "", cut(JSON.stringify(value, null, 1))));
  if (error?.traceback) nodes.push(made("h3", "", "Error"), coloured(error.traceback));
  at("results").replaceChildren(...nodes);
}

// The layers of a run or a job, one after the other.

/** Shows layers: objects of a name, a class, milliseconds and, if there is more to say, a note. */
function drawLayers(layers) {
  const given = layers.filter((layer) => layer && layer.ms !== null && layer.ms >= 0);
  show(at("timeline"), given.length > 0);
  const strip = at("strip");
  const list = at("layers");
  while (strip.children.length > given.length) { strip.lastElementChild.remove(); list.lastElementChild.remove(); }
  given.forEach((layer, index) => {
    const span = strip.children[index] ?? strip.appendChild(made("span", ""));
    span.className = layer.kind;
    span.style.flexGrow = String(Math.max(layer.ms, 0.001));
    const item = list.children[index] ?? list.appendChild(made("li", ""));
    if (!item.firstElementChild) item.append(made("i", ""), made("span", ""));
    item.firstElementChild.className = layer.kind;
    say(item.lastElementChild, `${layer.name} ${time(layer.ms)}${layer.note ? ` (${layer.note})` : ""}`);
  });
}

function runLayers(run, outcome, effective) {
  if (run?.status === "queued") return [{ name: "queued", kind: "queued", ms: run.elapsed_ms }];
  if (!outcome) {
    if (!run) return [];
    const grace = effective?.grace_ms?.limit;
    const before = (run.queued_ms ?? 0) + (run.spawn_ms ?? 0);
    return [
      { name: "queued", kind: "queued", ms: run.queued_ms ?? null },
      { name: "spawn", kind: "spawn", ms: run.spawn_ms ?? null },
      { name: run.paused ? "run, paused now" : "run, so far", kind: run.paused ? "paused" : "run", ms: Math.max(0, run.elapsed_ms - before) },
      run.wall_left_ms === null ? null : { name: "left until its wall limit", kind: "rest", ms: run.wall_left_ms },
      grace ? { name: "grace after that", kind: "grace", ms: grace } : null,
    ];
  }
  const { verdict, usage, tree } = outcome;
  const spent = verdict?.spent;
  const signals = verdict?.signals ?? [];
  const kill = signals.find(({ signal }) => signal === "SIGKILL");
  const first = signals.find(({ signal }) => signal !== "SIGKILL");
  const end = kill?.at_ms ?? usage.wall_ms;
  const graceBegins = first && first.at_ms < end ? first.at_ms : end;
  return [
    { name: "queued", kind: "queued", ms: usage.queued_ms },
    { name: "spawn", kind: "spawn", ms: usage.spawn_ms },
    { name: "run", kind: "run", ms: Math.max(0, graceBegins) },
    spent?.paused_ms ? { name: "paused", kind: "paused", ms: spent.paused_ms, note: "its clock was stopped" } : null,
    graceBegins < end ? { name: "grace", kind: "grace", ms: end - graceBegins, note: `${first.signal} to ${kill ? "SIGKILL" : "its end"}` } : null,
    tree.dead_after_ms === null || tree.killed === 0 ? null : { name: "kill", kind: "kill-layer", ms: tree.dead_after_ms, note: `${some(tree.killed, "process", "processes")} killed` },
  ];
}

const jobLayers = (job) => {
  const spent = job.result?.spent;
  const now = job.ended_ms ?? Date.now();
  if (!spent) {
    const waited = (job.leased_ms ?? now) - Math.max(job.submitted_ms, Math.min(job.due_ms, now));
    return [
      { name: "queued", kind: "queued", ms: Math.max(0, waited) },
      job.leased_ms === null ? null : { name: job.ended_ms === null ? "run, so far" : "run", kind: "run", ms: Math.max(0, now - job.leased_ms) },
    ];
  }
  return [
    spent.earlier_ms ? { name: "earlier deliveries", kind: "backoff", ms: spent.earlier_ms } : null,
    { name: "queued", kind: "queued", ms: spent.queued_ms },
    { name: "attempts", kind: "run", ms: spent.attempts_ms, note: some(spent.attempts, "attempt", "attempts") },
    spent.backoff_ms ? { name: "pauses between attempts", kind: "backoff", ms: spent.backoff_ms } : null,
    spent.driver_ms ? { name: "driver", kind: "spawn", ms: spent.driver_ms } : null,
  ];
};
