/** Sandboxes: private file systems in which many runs, contexts and sessions work, and which outlive them. */

import { Context } from "./context.js";
import { Files } from "./files.js";
import type { Http } from "./http.js";
import { Run, WAIT_MS, asked, countdown, gone, query } from "./run.js";
import type { components } from "./openapi.js";
import type {
  ContextInfo,
  ContextRequest,
  ForegroundRequest,
  Outcome,
  RunInfo,
  RunRequest,
  SandboxChanges,
  SandboxInfo,
  SandboxLink,
  SandboxPort,
  SessionRequest,
  Template,
  Waitable,
} from "./types.js";

/**
 * A sandbox of a server: a private file system with a user, in which commands run one after the other or at the same time, each under its
 * own limits. It exists until it is deleted, or reaches its `wall_ms` or `idle_ms`. At the end of `await using` it is deleted.
 */
export class Sandbox implements AsyncDisposable {
  readonly #http: Http;
  readonly #path: string;
  /** All of its files, as its user: paths are absolute, or below /workspace. */
  readonly files: Files;

  /** @internal */
  constructor(
    http: Http,
    /** The id of the sandbox. */
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/sandboxes/${encodeURIComponent(id)}`;
    this.files = new Files(http, { sandbox: id });
  }

  /** Returns the current state. */
  info({ signal }: Waitable = {}): Promise<SandboxInfo> {
    return this.#http.get(this.#path, signal);
  }

  /** Runs a command, or code in a language, in the sandbox, and waits for its end. An abort cancels the run. */
  async exec(request: Omit<ForegroundRequest, "sandbox" | "workspace">, { signal }: Waitable = {}): Promise<Outcome> {
    const info = await this.#http.post<RunInfo>(`${this.#path}/exec`, { ...asked(request), wait_ms: WAIT_MS, attached: true }, signal);
    return info.outcome ?? new Run(this.#http, info.run_id).waitOrCancel({ signal });
  }

  /** Starts a run in the sandbox, in the background. It ends at the latest with the sandbox. */
  async start(request: Omit<RunRequest, "sandbox" | "workspace">, { signal }: Waitable = {}): Promise<Run> {
    const info = await this.#http.post<RunInfo>(`${this.#path}/exec`, { ...asked(request), wait_ms: 0 }, signal);
    return new Run(this.#http, info.run_id);
  }

  /** Opens a live interpreter in the sandbox. In Python only if the sandbox is of the template `host`. */
  async context(request: Omit<ContextRequest, "sandbox" | "workspace"> = {}, { signal }: Waitable = {}): Promise<Context> {
    const info = await this.#http.post<ContextInfo>("/v1/contexts", { ...request, sandbox: this.id }, signal);
    return new Context(this.#http, "contexts", info.context_id);
  }

  /** Opens a live shell in the sandbox. */
  async session(request: Omit<SessionRequest, "sandbox" | "workspace"> = {}, { signal }: Waitable = {}): Promise<Context> {
    const info = await this.#http.post<ContextInfo>("/v1/sessions", { ...request, sandbox: this.id }, signal);
    return new Context(this.#http, "sessions", info.context_id);
  }

  /** Returns the TCP ports on which something in it listens. */
  async ports({ signal }: Waitable = {}): Promise<SandboxPort[]> {
    return (await this.#http.get<components["schemas"]["SandboxPorts"]>(`${this.#path}/ports`, signal)).ports;
  }

  /** Waits until something in it listens on the TCP port, or `wait_ms` have passed, and returns whether that is so. */
  async waitForPort(port: number, options: Waitable & { readonly wait_ms?: number } = {}): Promise<boolean> {
    for (const left = countdown(options.wait_ms); ; ) {
      const wait_ms = Math.ceil(Math.min(WAIT_MS, Math.max(0, left())));
      const path = `${this.#path}/ports${query({ port, wait_ms })}`;
      const answer = await this.#http.patient<components["schemas"]["SandboxPorts"]>(path, options.signal);
      if (answer.listening === true || left() <= 0) return answer.listening === true;
    }
  }

  /** Makes a link to a port of it, which needs no token until `ttl_ms` have passed (default an hour), or the server is started again. */
  expose(port: number, options: Waitable & { readonly ttl_ms?: number } = {}): Promise<SandboxLink> {
    const { signal, ...asked } = options;
    return this.#http.post(`${this.#path}/expose`, { port, ...asked }, signal);
  }

  /** Makes a template of its files, which nothing changes any more. Nothing may run in it. No file is copied. */
  snapshot(name?: string, { signal }: Waitable = {}): Promise<Template> {
    return this.#http.post(`${this.#path}/snapshot`, name === undefined ? {} : { name }, signal);
  }

  /**
   * Makes sandboxes with its files, which then change independently: `count` of them (default 1, at most 100), or none. Nothing may run in
   * it. No file is copied.
   */
  async fork(count = 1, { signal }: Waitable = {}): Promise<Sandbox[]> {
    const made = await this.#http.post<components["schemas"]["SandboxList"]>(`${this.#path}/fork`, { count }, signal);
    return made.sandboxes.map((sandbox) => new Sandbox(this.#http, sandbox.sandbox_id));
  }

  /**
   * Returns what has changed in it against its template, sorted by path. A deleted directory stands for all that was in it. `truncated`:
   * there are more than `limit` (default 1000, at most 100,000).
   */
  diff(options: Waitable & { readonly limit?: number } = {}): Promise<SandboxChanges> {
    const { signal, ...asked } = options;
    return this.#http.get(`${this.#path}/diff${query(asked)}`, signal);
  }

  /** Iterates over the bytes of a tar archive of its files; with `changes` only of those that were added or changed against its template. */
  export(options: Waitable & { readonly changes?: boolean } = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const what = options.changes === true ? "changes" : "all";
    return this.#http.bytes(`${this.#path}/export${query({ what })}`, options.signal);
  }

  /**
   * Stops all that runs in it, and the clocks of its limits. Until it is resumed, nothing can be started in it (`sandbox_paused`), and its
   * files can only be read.
   */
  pause({ signal }: Waitable = {}): Promise<SandboxInfo> {
    return this.#http.post(`${this.#path}/pause`, {}, signal);
  }

  /** Continues what `pause` has stopped: its limits end later by the length of the pause. */
  resume({ signal }: Waitable = {}): Promise<SandboxInfo> {
    return this.#http.post(`${this.#path}/resume`, {}, signal);
  }

  /** Extends its wall-clock limit, if it has one, by a number of milliseconds, and begins its idle limit again. */
  extend(by_ms: number, { signal }: Waitable = {}): Promise<SandboxInfo> {
    return this.#http.post(`${this.#path}/extend`, { by_ms }, signal);
  }

  /** Ends all that runs in it, and deletes it with all of its files. */
  delete(): Promise<void> {
    return this.#http.delete(this.#path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await gone(this.delete(), "sandbox_not_found");
  }
}
