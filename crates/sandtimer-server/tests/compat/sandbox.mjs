// The package's own classes, with a state that is a map and a container that is the server under test.
import { pathToFileURL } from "node:url";

const { SANDTIMER_URL: base, SANDTIMER_TOKEN: token, SANDTIMER_TEST_NPM: modules } = process.env;
// The package logs every call.
for (const name of ["debug", "info", "log", "warn", "error"]) console[name] = () => {};

export const api = await import(pathToFileURL(`${modules}/@cloudflare/sandbox/dist/index.js`));
/** Whether a sandbox asks over one WebSocket. */
export const overSocket = process.env.SANDTIMER_TRANSPORT === "websocket";
const authorization = token ? { Authorization: `Bearer ${token}` } : {};

function state(id) {
  const values = new Map();
  const storage = {
    get: async (key) => values.get(key),
    put: async (key, value) => void values.set(key, value),
    delete: async (key) => values.delete(key),
    setAlarm: async () => {},
    getAlarm: async () => null,
    deleteAlarm: async () => {},
    sync: async () => {},
    kv: { get: (key) => values.get(key), put: (key, value) => values.set(key, value), delete: (key) => values.delete(key) },
    sql: { exec: () => [] },
    transaction: async (work) => work(storage),
  };
  const container = { running: false, monitor: () => new Promise(() => {}) };
  return {
    id: { toString: () => id, name: id },
    storage,
    container,
    exports: {},
    waitUntil() {},
    abort() {},
    blockConcurrencyWhile: (work) => work(),
  };
}

/** The sockets that were opened. */
export const sockets = [];

/** A sandbox of the package; `network`: what it may reach outside, if it is not made yet. */
export function sandbox(id, { network } = {}) {
  const own = network === undefined ? {} : { "X-Sandbox-Network": network };
  class Local extends api.Sandbox {
    // Where a Worker would reach its container.
    containerFetch(url, init) {
      const { pathname, search } = new URL(url);
      return fetch(base + pathname + search, { ...init, headers: { ...init?.headers, ...authorization, ...own } });
    }
    // The same for a WebSocket, as the runtime of Workers hands it out.
    async fetch(request) {
      const socket = new WebSocket(base.replace(/^http/, "ws") + new URL(request.url).pathname);
      await new Promise((open, fail) => Object.assign(socket, { onopen: open, onerror: fail }));
      sockets.push(socket);
      return { status: 101, webSocket: Object.assign(socket, { accept() {} }) };
    }
  }
  return new Local(state(id), overSocket ? { SANDBOX_TRANSPORT: "websocket" } : {});
}

/** The client below it, which speaks to a URL. */
export function client(id) {
  const named = id ? { "X-Sandbox-Id": id } : {};
  return new api.SandboxClient({ baseUrl: base, defaultHeaders: { ...authorization, ...named } });
}

/** A plain request. */
export async function post(path, body, init = {}) {
  const headers = { "Content-Type": "application/json", ...authorization, ...init.headers };
  return fetch(base + path, { method: "POST", body: JSON.stringify(body), ...init, headers });
}

/** Waits until it is true, at most so long. */
export async function eventually(what, check, seconds = 20) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await new Promise((wake) => setTimeout(wake, 20))) {
    if (await check()) return;
  }
  throw new Error(`not within ${seconds} s: ${what}`);
}
