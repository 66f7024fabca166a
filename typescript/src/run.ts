/** Runs of a server, active or ended, and the requests that concern them. */

import { Chunks, inputOf } from "./bytes.js";
import { SandtimerError } from "./errors.js";
import type { Http } from "./http.js";
import { Terminal, type TerminalOptions } from "./terminal.js";
import type {
  Chunk,
  ErrorCode,
  Extended,
  Input,
  LineOptions,
  Outcome,
  OutputPiece,
  RunEvent,
  RunInfo,
  Stream,
  TextErrors,
  Waitable,
  WaitedForLine,
  WaitedForPort,
  Written,
} from "./types.js";

/** How long one request waits for an end, in milliseconds: less than what proxies and `fetch` wait for an answer. */
export const WAIT_MS = 50_000;
/** How long the request that cancels a run may delay an abort, in milliseconds. */
const CANCEL_MS = 5_000;

/** A run of a server. The server enforces its limits, whether or not a client is connected. At the end of `await using` it is killed. */
export class Run implements AsyncDisposable {
  readonly #http: Http;
  readonly #path: string;

  /** @internal */
  constructor(
    http: Http,
    /** The id of the run. */
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/runs/${encodeURIComponent(id)}`;
  }

  /** Returns the current state. */
  info(options: Waitable = {}): Promise<RunInfo> {
    return this.#http.get(this.#path, options.signal);
  }

  /** Waits for the end of the run, also through a restart of the server. An abort ends the wait, not the run. */
  async wait({ signal }: Waitable = {}): Promise<Outcome> {
    for (;;) {
      const info = await this.#http.patient<RunInfo>(`${this.#path}?wait_ms=${WAIT_MS}`, signal);
      if (info.outcome !== null) return info.outcome;
    }
  }

  /** @internal Waits for the end of a run in the foreground: an abort cancels it. */
  async waitOrCancel({ signal }: Waitable): Promise<Outcome> {
    try {
      return await this.wait({ signal });
    } catch (error) {
      // The caller has the reason of the abort; a failure of the request for it does not help.
      if (signal?.aborted === true) await this.#cancel().catch(() => undefined);
      throw error;
    }
  }

  #cancel(): Promise<RunInfo> {
    const soon = AbortSignal.timeout(CANCEL_MS);
    return this.#http.post(`${this.#path}/kill`, { reason: "its client aborted it", wait_ms: 0 }, soon);
  }

  /**
   * Iterates over the events of the run, from the first one or after the one with the id `after`. If the connection breaks,
   * the reader continues at its position.
   */
  async *events({ after, signal }: Waitable & { readonly after?: string } = {}): AsyncGenerator<RunEvent, void, undefined> {
    const all = this.#http.events(`${this.#path}/events`, after, (event) => event.event === "ended", signal);
    for await (const { id, event, data } of all) {
      yield { id, event, data: JSON.parse(data) } as RunEvent;
    }
  }

  /** Iterates over the output of the run, to its end: both streams, or one. */
  async *output({ stream, signal }: Waitable & { readonly stream?: Stream } = {}): AsyncGenerator<Chunk, void, undefined> {
    const chunks = new Chunks();
    for await (const event of this.events({ signal })) {
      const chunk = chunks.of(event);
      if (chunk !== undefined && (stream ?? chunk.stream) === chunk.stream) yield chunk;
    }
    yield* chunks.end().filter((chunk) => (stream ?? chunk.stream) === chunk.stream);
  }

  /** Returns a part of the output so far. `next_cursor` is the position of the next part. */
  readOutput(options: Waitable & TextErrors & { readonly stream?: Stream; readonly cursor?: number; readonly max_bytes?: number } = {}): Promise<OutputPiece> {
    const { signal, ...asked } = options;
    return this.#http.get(`${this.#path}/output${query(asked)}`, signal);
  }

  /**
   * Waits until the run has written a line that matches, has ended, or `wait_ms` have passed: see `matched` and `status`. `pattern`
   * is a regular expression of Rust's `regex`, which has no look-around and no back-references. A line without an end,
   * such as a prompt, counts once it has not grown for 100 ms. `next_cursor` is the position after the line.
   */
  async waitForLine(pattern: string, options: Waitable & LineOptions = {}): Promise<WaitedForLine> {
    const { signal, wait_ms, ...where } = options;
    let asked = { ...where, pattern };
    for (const left = countdown(wait_ms); ; ) {
      const answer = await this.#waitFor<WaitedForLine>(asked, left, signal);
      if (answer.matched || answer.status === "ended" || left() <= 0) return answer;
      // What was looked through is not looked through again.
      asked = { ...asked, cursor: answer.next_cursor };
    }
  }

  /** Waits until a process of the run listens on the TCP port, the run has ended, or `wait_ms` have passed: see `listening` and `status`. */
  async waitForPort(port: number, options: Waitable & { readonly wait_ms?: number } = {}): Promise<WaitedForPort> {
    for (const left = countdown(options.wait_ms); ; ) {
      const answer = await this.#waitFor<WaitedForPort>({ port }, left, options.signal);
      if (answer.listening || answer.status === "ended" || left() <= 0) return answer;
    }
  }

  #waitFor<Answer>(asked: object, left: () => number, signal: AbortSignal | undefined): Promise<Answer> {
    const wait_ms = Math.ceil(Math.min(WAIT_MS, Math.max(0, left())));
    return this.#http.patient(`${this.#path}/wait`, signal, { ...asked, wait_ms });
  }

  /** Ends the run and all processes that it started. If it has ended, the call has no effect. */
  kill(options: { readonly reason?: string; readonly wait_ms?: number } = {}): Promise<RunInfo> {
    return this.#http.post(`${this.#path}/kill`, options);
  }

  /** Extends the wall-clock limit by a number of milliseconds. */
  extend(by_ms: number): Promise<Extended> {
    return this.#http.post(`${this.#path}/extend`, { by_ms });
  }

  /** Stops the processes of the run, and its clock. */
  async pause(): Promise<void> {
    await this.#http.post(`${this.#path}/pause`, {});
  }

  /** Continues a run after `pause`. */
  async resume(): Promise<void> {
    await this.#http.post(`${this.#path}/resume`, {});
  }

  /** Sends a signal to the run, such as "SIGUSR1" or 10. */
  async signal(signal: string | number): Promise<void> {
    await this.#http.post(`${this.#path}/signal`, { signal });
  }

  /** Writes to the stdin of the run, which was started with `stdin_open`. Returns how many bytes were taken: a command that does not read takes few. */
  write(data: Input, options: { readonly eof?: boolean; readonly wait_ms?: number } = {}): Promise<Written> {
    return this.#http.post(`${this.#path}/stdin`, { ...inputOf("data", "encoding", data), ...options });
  }

  /** Connects to the terminal of the run. Several clients may; after a broken connection, `cursor` continues at its position. */
  terminal({ signal, ...asked }: Waitable & TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#http, `${this.#path}/terminal${query({ ...asked })}`, asked.cursor ?? 0, signal);
  }

  /** Removes the record of a run that has ended. */
  delete(): Promise<void> {
    return this.#http.delete(this.#path);
  }

  /** Ends the run, if it is active. */
  async [Symbol.asyncDispose](): Promise<void> {
    await gone(this.kill(), "run_not_found");
  }
}

/** Returns the milliseconds that are left of `wait_ms`; undefined is unlimited. */
/** @internal Returns the milliseconds that are left of a wait; one without a bound has them always. */
export function countdown(wait_ms: number | undefined): () => number {
  const end = performance.now() + (wait_ms ?? Infinity);
  return () => end - performance.now();
}

/** @internal Waits for an end, which something that is not there any more has had. */
export async function gone(ending: Promise<unknown>, ...codes: ErrorCode[]): Promise<void> {
  try {
    await ending;
  } catch (error) {
    if (!(error instanceof SandtimerError && codes.some((code) => code === error.code))) throw error;
  }
}

/** @internal What is to be run, as it is sent. */
export function asked<Request extends { readonly stdin?: Input }>({ stdin, ...others }: Request): object {
  return { ...others, ...inputOf("stdin", "stdin_encoding", stdin) };
}

/** @internal */
export function query(asked: Readonly<Record<string, string | number | boolean | undefined>>): string {
  const given = Object.entries(asked).filter(([, value]) => value !== undefined);
  const text = given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
  return text === "" ? "" : `?${text}`;
}
