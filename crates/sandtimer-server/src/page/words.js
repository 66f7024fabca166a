// Text from runs and jobs is hostile. It enters the document as text only (textContent, createTextNode); the page's policy
// refuses everything else as well.

const at = (id) => document.getElementById(id);
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const show = (node, shown) => { if (node.hidden === shown) node.hidden = !shown; };
const made = (name, kind, text = "") => {
  const node = document.createElement(name);
  node.className = kind;
  node.textContent = text;
  return node;
};
const pause = (milliseconds, signal) => new Promise((done) => {
  const timer = setTimeout(done, milliseconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// Numbers as words.

function time(ms) {
  if (ms === null || ms === undefined) return "not known";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

/** A chosen duration: without its parts that are zero. */
const round = (ms) => time(ms).replace(/\.0 s$/, " s").replace(/ 00 (s|min)$/, "").replace(/ 0 h$/, "");

function size(bytes) {
  if (bytes === null || bytes === undefined) return "not known";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; unit += 1) bytes /= 1024;
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

/** How long ago or until; the server's clock and this one may differ by a little. */
const ago = (ms) => (ms < 1000 ? "just now" : `${time(Math.floor(ms / 1000) * 1000)} ago`);
const until = (ms) => (ms < 1000 ? "now" : `in ${time(Math.floor(ms / 1000) * 1000)}`);
const moment = (ms) => (ms === null || ms === undefined ? null : new Date(ms).toLocaleString());
const some = (number, one, many) => `${counted(number)} ${number === 1 ? one : many}`;
/** A count with its digits in groups of three. */
const counted = (number) => number.toLocaleString("en-US");

const ENDINGS = {
  exited: "exited", signaled: "ended by a signal", returned: "returned", raised: "raised an error", no_result: "no result",
  timeout: "timed out", stalled: "stalled", out_of_memory: "out of memory", output_limit: "output limit",
  process_limit: "process limit", disk_limit: "disk limit", budget: "budget used up", cancelled: "cancelled",
  infra_error: "failed by no fault of its own",
};
const SOURCES = { call: "the call", session: "the session", env: "the environment", config: "a file", builtin: "the defaults", ceiling: "a ceiling", ancestor: "what is around it" };
const WAITS = {
  stdin: "waits for input", sleep: "sleeps", network: "waits for the network", child: "waits for a child process",
  cpu: "computes", io: "waits for a file or a device", stopped: "is stopped",
};
const ending = (name, code) => (ENDINGS[name] ?? name) + (code === null || code === undefined ? "" : `, code ${code}`);
const command = (words) => words.join(" ");

/** What a run says of its progress, and when it is done. */
function progressWords({ done, total, eta_ms: eta, p_finish_before_deadline: chance }) {
  const number = (value) => String(Math.round(value * 100) / 100);
  const part = total ? `${number(done)} of ${number(total)} (${Math.min(100, Math.floor((done / total) * 100))} %)` : `${number(done)} done`;
  const rest = eta === null || eta === undefined ? "" : `, finished in about ${round(Math.ceil(eta / 1000) * 1000)}`;
  return `${part}${rest}${chance === null || chance === undefined ? "" : `, within its limit with a chance of ${Math.round(chance * 100)} %`}`;
}

// Parts of the document that several views have.

/** Shows parts of a line: texts, or pairs of a text and a class. */
const facts = (parent, ...parts) => {
  const given = parts.filter((part) => part);
  while (parent.children.length > given.length) parent.lastElementChild.remove();
  given.forEach((part, index) => {
    const [text, kind] = Array.isArray(part) ? part : [part, ""];
    const node = parent.children[index] ?? parent.appendChild(made("span", ""));
    say(node, text);
    if (node.className !== kind) node.className = kind;
  });
};

function pairs(node, given) {
  node.replaceChildren(...given.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => {
    const pair = made("div", "");
    pair.append(made("dt", "", name), made("dd", "", String(value)));
    return pair;
  }));
}

/** A table of texts and nodes; it scrolls by itself where it is wide. */
function table(heads, lines) {
  const node = made("table", "");
  const head = node.createTHead().insertRow();
  for (const name of heads) head.append(Object.assign(made("th", "", name), { scope: "col" }));
  const body = node.createTBody();
  for (const line of lines) {
    const row = body.insertRow();
    for (const cell of line) row.insertCell().append(cell ?? "");
  }
  const around = made("div", "wide");
  around.append(node);
  return around;
}
