/** Runs: one that goes on, or has ended, and what can be done to it. */

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
/** How long telling the server of an abort may hold the abort up, in milliseconds. */
const CANCEL_MS = 5_000;

/** A run of the server's, by its id. Its limits are the server's to keep: whoever holds this may go away. */
export class Run implements AsyncDisposable {
  readonly #http: Http;
  readonly #path: string;

  /** @internal */
  constructor(
    http: Http,
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/runs/${encodeURIComponent(id)}`;
  }

  /** What is known of it now. */
  info(options: Waitable = {}): Promise<RunInfo> {
    return this.#http.get(this.#path, options.signal);
  }

  /** Waits for its end, however long that takes, also through a restart of the server. An abort ends the waiting, not the run. */
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
      // Whoever aborted has the reason; that the server could not be told as well does not help them.
      if (signal?.aborted === true) await this.#cancel().catch(() => undefined);
      throw error;
    }
  }

  #cancel(): Promise<RunInfo> {
    const soon = AbortSignal.timeout(CANCEL_MS);
    return this.#http.post(`${this.#path}/kill`, { reason: "its client aborted it", wait_ms: 0 }, soon);
  }

  /**
   * What happens to it, from the beginning or from behind the event with the id `after`, to its end. The connection may
   * break: the reader goes on where it was.
   */
  async *events({ after, signal }: Waitable & { readonly after?: string } = {}): AsyncGenerator<RunEvent, void, undefined> {
    const all = this.#http.events(`${this.#path}/events`, after, (event) => event.event === "ended", signal);
    for await (const { id, event, data } of all) {
      yield { id, event, data: JSON.parse(data) } as RunEvent;
    }
  }

  /** What it writes, as it comes, to its end: both streams, or one. */
  async *output({ stream, signal }: Waitable & { readonly stream?: Stream } = {}): AsyncGenerator<Chunk, void, undefined> {
    const chunks = new Chunks();
    for await (const event of this.events({ signal })) {
      const chunk = chunks.of(event);
      if (chunk !== undefined && (stream ?? chunk.stream) === chunk.stream) yield chunk;
    }
    yield* chunks.end().filter((chunk) => (stream ?? chunk.stream) === chunk.stream);
  }

  /** What it has written so far, from a position: one piece. `next_cursor` is where to go on. */
  readOutput(options: Waitable & TextErrors & { readonly stream?: Stream; readonly cursor?: number; readonly max_bytes?: number } = {}): Promise<OutputPiece> {
    const { signal, ...asked } = options;
    return this.#http.get(`${this.#path}/output${query(asked)}`, signal);
  }

  /**
   * Waits until it has written a line that matches, or is over, or `wait_ms` are: `matched` and `status` say which. `pattern`
   * is a regular expression of Rust's `regex`, which knows no look-around and no back-references. A line without an end,
   * such as a prompt, counts once it has not grown for 100 ms. `next_cursor` is where to go on behind the line.
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

  /** Waits until one of its processes listens on the TCP port, or it is over, or `wait_ms` are: `listening` and `status` say which. */
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

  /** Ends it and all that it started. Of a run that is over it is no error. */
  kill(options: { readonly reason?: string; readonly wait_ms?: number } = {}): Promise<RunInfo> {
    return this.#http.post(`${this.#path}/kill`, options);
  }

  /** Moves its wall limit. */
  extend(by_ms: number): Promise<Extended> {
    return this.#http.post(`${this.#path}/extend`, { by_ms });
  }

  /** Stops its processes, and its clock. */
  async pause(): Promise<void> {
    await this.#http.post(`${this.#path}/pause`, {});
  }

  async resume(): Promise<void> {
    await this.#http.post(`${this.#path}/resume`, {});
  }

  /** Sends a signal, such as "SIGUSR1" or 10. */
  async signal(signal: string | number): Promise<void> {
    await this.#http.post(`${this.#path}/signal`, { signal });
  }

  /** Writes to its stdin, which was started with `stdin_open`. Says how many bytes were taken: a command that does not read takes few. */
  write(data: Input, options: { readonly eof?: boolean; readonly wait_ms?: number } = {}): Promise<Written> {
    return this.#http.post(`${this.#path}/stdin`, { ...inputOf("data", "encoding", data), ...options });
  }

  /** Connects to the terminal that it was started with. Several may; where a connection broke, `cursor` goes on. */
  terminal({ signal, ...asked }: Waitable & TerminalOptions = {}): Promise<Terminal> {
    return Terminal.open(this.#http, `${this.#path}/terminal${query({ ...asked })}`, asked.cursor ?? 0, signal);
  }

  /** Removes the record of a run that is over. */
  delete(): Promise<void> {
    return this.#http.delete(this.#path);
  }

  /** Ends it, if it still goes on. */
  async [Symbol.asyncDispose](): Promise<void> {
    await gone(this.kill(), "run_not_found");
  }
}

/** Milliseconds that are left, of so many from now on; without end unless given. */
function countdown(wait_ms: number | undefined): () => number {
  const end = performance.now() + (wait_ms ?? Infinity);
  return () => end - performance.now();
}

/** @internal Waits for an end, which something that is not there any more has had. */
export async function gone(ending: Promise<unknown>, code: ErrorCode): Promise<void> {
  try {
    await ending;
  } catch (error) {
    if (!(error instanceof SandtimerError && error.code === code)) throw error;
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
