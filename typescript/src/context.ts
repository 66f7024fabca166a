/** Contexts and sessions: live interpreters and live shells, where what one execution leaves the next one finds. */

import { Files } from "./files.js";
import type { Http } from "./http.js";
import { Run, WAIT_MS, asked, gone } from "./run.js";
import type { components } from "./openapi.js";
import type { BackgroundCellOptions, BranchOptions, CellOptions, CellOutcome, ContextInfo, Outcome, Waitable } from "./types.js";

/** How long one request waits for its turn, in milliseconds: less than `fetch` waits for an answer. */
const TURN_MS = 240_000;

type Executed = components["schemas"]["Executed"];

/** A live interpreter; for a session, a live shell. It belongs to the server and ends when it is closed, or unused for its `idle_ms`. */
export class Context implements AsyncDisposable {
  readonly #http: Http;
  readonly #path: string;

  /** The files of its workspace, which it has as /workspace. */
  readonly files: Files;

  /** @internal */
  constructor(
    http: Http,
    kind: "contexts" | "sessions",
    /** The id of the context or session. */
    readonly id: string,
  ) {
    this.#http = http;
    this.files = new Files(http, kind === "contexts" ? { context: id } : { session: id });
    this.#path = `/v1/${kind}/${encodeURIComponent(id)}`;
  }

  /** Returns the current state. */
  info(options: Waitable = {}): Promise<ContextInfo> {
    return this.#http.get(this.#path, options.signal);
  }

  /**
   * Executes code (in a session: a command) and waits for its end. `results` of the outcome has all that was displayed, by
   * MIME type, and `value` the last expression's value where JSON can hold it; `state` is whether the context kept its
   * state or went back. An abort cancels it. One execution at a time, others wait in order.
   */
  async execute(code: string, options: CellOptions & Waitable = {}): Promise<CellOutcome> {
    const { signal, ...given } = options;
    const executed = await this.#send({ code, ...asked(given), wait_ms: WAIT_MS, turn_ms: TURN_MS, attached: true }, signal);
    const outcome = executed.outcome ?? (await new Run(this.#http, executed.run_id).waitOrCancel({ signal }));
    return { ...(outcome as Outcome), notes: executed.notes };
  }

  /**
   * Waits until code (in a session: a command) has its turn, for some minutes at most, and gives its run, which continues in the
   * background: its output and events can be read as they come, and with `stdin_open` its stdin can be written to. An abort while it waits for its turn withdraws it.
   */
  async start(code: string, options: BackgroundCellOptions & Waitable = {}): Promise<Run> {
    const { signal, ...given } = options;
    const executed = await this.#send({ code, ...asked(given), wait_ms: 0, turn_ms: TURN_MS }, signal);
    return new Run(this.#http, executed.run_id);
  }

  #send(body: components["schemas"]["CellRequest"], signal: AbortSignal | undefined): Promise<Executed> {
    return this.#http.post(`${this.#path}/execute`, body, signal);
  }

  /** Interrupts the active execution, as Ctrl-C does. Returns false if there is none. */
  async interrupt(): Promise<boolean> {
    const answer = await this.#http.post<components["schemas"]["Interrupted"]>(`${this.#path}/interrupt`, {});
    return answer.interrupted;
  }

  /**
   * Makes `count` copies of the context (default 1, at most 64), each with a sandbox and files of
   * its own, and with the limits of this one if none are given. Only Python contexts can be branched.
   */
  async branch(options: BranchOptions & Waitable = {}): Promise<Context[]> {
    const { signal, ...asked } = options;
    const path = `/v1/contexts/${encodeURIComponent(this.id)}/branch`;
    const made = await this.#http.post<components["schemas"]["ContextList"]>(path, asked, signal);
    return made.contexts.map((context) => new Context(this.#http, "contexts", context.context_id));
  }

  /** Restores the state before the last execution that changed something. */
  undo(): Promise<ContextInfo> {
    return this.#http.post(`${this.#path}/undo`, {});
  }

  /** Ends the context and all processes that it started. */
  close(): Promise<void> {
    return this.#http.delete(this.#path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // It may have ended with its sandbox or its server.
    await gone(this.close(), "context_not_found", "context_ended");
  }
}
