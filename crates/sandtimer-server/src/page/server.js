// The server, and the token that it asks for.

const POLL_MS = 1000;
const LONGEST_PAUSE_MS = 30000;
const ANSWER_MS = 15000;
const TOKEN = "sandtimer-token";

class Refused extends Error {
  constructor(status, body) {
    super(body?.message ?? `The server answered ${status}`);
    this.status = status;
    this.hint = body?.hint;
  }
}

const reason = (error) => (error instanceof Refused ? `${error.message}. ${error.hint ?? ""}`.trim() : "The server does not answer.");

async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => null);
  const refused = new Refused(answer.status, body);
  if (refused.status === 401) wantToken(token !== null);
  throw refused;
}

const limited = () => AbortSignal.timeout(ANSWER_MS);
const get = async (path) => (await ask(path, { signal: limited() })).json();
const post = async (path, body) => (await ask(path, { method: "POST", body: JSON.stringify(body), signal: limited() })).json();
const remove = (path) => ask(path, { method: "DELETE", signal: limited() });

let locked = false;

function wantToken(wrong) {
  sessionStorage.removeItem(TOKEN);
  if (wrong) say(at("refused"), "The server does not know this token.");
  if (locked) return;
  locked = true;
  halt();
  document.querySelector("main").classList.add("locked");
  for (const id of ["lists", "detail", "tabs"]) show(at(id), false);
  show(at("entry"), true);
  say(at("connection"), "The server asks for a token.");
  at("secret").focus();
}

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = at("secret").value.trim();
  at("secret").value = "";
  say(at("refused"), "");
  // A header takes nothing else, and a token has nothing else.
  if (!/^[\x21-\x7e]+$/.test(token)) return say(at("refused"), "The server does not know this token.");
  sessionStorage.setItem(TOKEN, token);
  locked = false;
  document.querySelector("main").classList.remove("locked");
  show(at("entry"), false);
  go();
});

/** Takes server-sent events apart. */
async function events(body, signal, take) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || signal.aborted) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = {};
      for (const line of block.split("\n")) {
        const colon = line.indexOf(": ");
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      if (event.event) take({ id: event.id, name: event.event, data: JSON.parse(event.data) });
    }
  }
}

// Questions before an action.

/** Asks whether to do something; `choices` are fields for it. Gives whether the answer was yes. */
function confirmed(question, label, choices = []) {
  const dialog = at("confirm");
  if (dialog.open) return Promise.resolve(false);
  say(at("question"), question);
  say(at("yes"), label);
  at("choices").replaceChildren(...choices);
  dialog.returnValue = "";
  dialog.showModal();
  (choices[0]?.querySelector("select") ?? at("yes")).focus();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

at("yes").addEventListener("click", () => at("confirm").close("yes"));
at("no").addEventListener("click", () => at("confirm").close("no"));
