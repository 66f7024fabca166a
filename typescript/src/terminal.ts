/** The terminal of a run: its output is read from here, and its input is written here. */

import { SandtimerError } from "./errors.js";
import { SILENCE_MS, unreachable, type Http, type WebSocketLike } from "./http.js";
import type { RunEnd } from "./types.js";

/** Bytes that wait to be read. A WebSocket has no flow control, so one whose reader is slower than this is closed. */
const MAX_WAITING_BYTES = 16 << 20;

/** The options of a connection to a terminal. */
export interface TerminalOptions {
  /** How many bytes of the output were read by an earlier connection. */
  readonly cursor?: number;
  /** Whether the run continues ("keep", the default) or is ended when this connection closes. */
  readonly on_close?: "keep" | "end";
}

/**
 * One connection to the terminal of a run that was started with `terminal`.
 *
 * ```ts
 * await using terminal = await run.terminal();
 * terminal.write("ls\n");
 * for await (const bytes of terminal) process.stdout.write(bytes);
 * terminal.end?.outcome.exit_code;
 * ```
 */
export class Terminal implements AsyncIterable<Uint8Array>, AsyncDisposable {
  /** How many bytes were read, or are lost: the position at which the next connection continues. */
  cursor: number;
  /** Bytes that are lost, because they exceeded the output limit of the run. */
  dropped = 0;
  /** The end of the run, once all output was read. */
  end: RunEnd | undefined;
  readonly #socket: WebSocketLike;
  readonly #arrived: (Uint8Array | Lagged | Error)[] = [];
  #waiting = 0;
  #ended: RunEnd | undefined;
  #closed = false;
  #silence: ReturnType<typeof setTimeout> | undefined;
  #wake: () => void = () => undefined;

  private constructor(socket: WebSocketLike, cursor: number) {
    this.#socket = socket;
    this.cursor = cursor;
    socket.addEventListener("message", ({ data }) => this.#hear(data));
    socket.addEventListener("close", () => {
      clearTimeout(this.#silence);
      this.#closed = true;
      this.#wake();
    });
    this.#listen();
  }

  /** The server sends heartbeats while there is no output: without one the connection is dead, and nothing else shows it. */
  #listen(): void {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#fail("the terminal's connection fell silent"), SILENCE_MS);
    (this.#silence as { unref?: () => void }).unref?.();
  }

  /** Ends the connection; what has arrived can be read, and then this is thrown. */
  #fail(message: string): void {
    if (this.#closed) return;
    clearTimeout(this.#silence);
    this.#closed = true;
    this.#arrived.push(unreachable(message));
    this.#socket.close();
    this.#wake();
  }

  /** @internal */
  static open(http: Http, path: string, cursor: number, signal?: AbortSignal): Promise<Terminal> {
    return http.webSocket(path, (socket) => new Terminal(socket, cursor), signal);
  }

  #hear(data: unknown): void {
    if (this.#closed) return;
    this.#listen();
    if (typeof data === "string") {
      const told = parse(data);
      if (told === undefined) return this.#fail("the terminal's connection carries what is none of its messages");
      if (told.ended !== undefined) this.#ended = told.ended;
      if (told.lagged !== undefined) this.#arrived.push(told.lagged);
      if (told.error !== undefined) this.#arrived.push(new SandtimerError(told.error));
    } else {
      const bytes = new Uint8Array(data as ArrayBuffer);
      this.#waiting += bytes.length;
      if (this.#waiting > MAX_WAITING_BYTES) {
        return this.#fail(`more than ${MAX_WAITING_BYTES} bytes wait to be read; open the terminal again at its \`cursor\``);
      }
      this.#arrived.push(bytes);
    }
    this.#wake();
  }

  /** Types: bytes, or text in UTF-8. "\u0003" is Ctrl-C. */
  write(data: string | Uint8Array): void {
    this.#send(typeof data === "string" ? new TextEncoder().encode(data) : data);
  }

  /** Sets the size of the terminal; its programs receive SIGWINCH. */
  resize(columns: number, rows: number): void {
    this.#send(JSON.stringify({ resize: { columns, rows } }));
  }

  #send(message: string | Uint8Array): void {
    // The end is sent before the connection is closed.
    if (this.#ended !== undefined || this.#socket.readyState !== 1) throw unreachable("the terminal's connection is closed");
    this.#socket.send(message);
  }

  /** What is shown, as it comes, to the end of the run. Throws `UnreachableError` where the connection breaks before. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const next = this.#arrived.shift();
      if (next instanceof Uint8Array) {
        this.cursor += next.length;
        this.#waiting -= next.length;
        yield next;
      } else if (next instanceof Error) {
        throw next;
      } else if (next !== undefined) {
        this.dropped += next.dropped;
        this.cursor = next.next_cursor;
      } else if (this.#ended !== undefined) {
        this.end = this.#ended;
        return;
      } else if (this.#closed) {
        throw unreachable("the terminal's connection broke");
      } else {
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    }
  }

  /** Leaves the terminal. */
  close(): void {
    this.#socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

interface Lagged {
  readonly dropped: number;
  readonly next_cursor: number;
}

function parse(text: string): Told | undefined {
  try {
    const told: unknown = JSON.parse(text);
    return typeof told === "object" && told !== null ? told : undefined;
  } catch {
    return undefined;
  }
}

/** A text message of the server's; one without any of these is a heartbeat. */
interface Told {
  readonly ended?: RunEnd;
  readonly lagged?: Lagged;
  readonly error?: ConstructorParameters<typeof SandtimerError>[0];
}
