/** Requests to one server: how a rejection becomes an error, and how often a broken connection is tried again. */

import { SandtimerError, UnreachableError, refusal } from "./errors.js";
import { EventParser, type ServerEvent } from "./sse.js";

/** Pauses before a wait or a stream that broke is resumed; then it fails. */
const PAUSES_MS = [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000];
/** A stream or terminal without data for this long is dead: the server sends heartbeats more often. */
export const SILENCE_MS = 60_000;

/** The options of a client. */
export interface ClientOptions {
  /** The address of the server. Default SANDTIMER_SERVER, else http://127.0.0.1:7880. */
  readonly url?: string | URL;
  /** The token. Default SANDTIMER_TOKEN, if there is an environment. */
  readonly token?: string;
  /** Used instead of the global one. */
  readonly fetch?: typeof globalThis.fetch;
  /** Used for terminals instead of the global one, which Node has from version 22 on; that of the package `ws` fits. */
  readonly webSocket?: WebSocketClass;
}

/** The part of a WebSocket that is used. */
export interface WebSocketLike {
  binaryType: string;
  /** 1 while it is open. */
  readonly readyState: number;
  send(data: string | Uint8Array): void;
  close(): void;
  addEventListener(type: "open" | "close" | "error", listener: () => void): void;
  addEventListener(type: "message", listener: (event: { readonly data: unknown }) => void): void;
}

/** A class of WebSockets, such as that of the package `ws`. */
export type WebSocketClass = new (url: string, protocols: string[]) => WebSocketLike;

/** The content of a file to be written. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

interface Request {
  readonly method?: string;
  /** Sent as JSON. */
  readonly body?: object;
  /** Sent as it is. */
  readonly content?: Content;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal | undefined;
}

export class Http {
  readonly #base: string;
  readonly #token: string | undefined;
  readonly #fetch: typeof globalThis.fetch;
  readonly #webSocket: WebSocketClass | undefined;

  constructor(options: ClientOptions) {
    const url = String(options.url ?? environment("SANDTIMER_SERVER") ?? "http://127.0.0.1:7880");
    if (!/^https?:\/\//.test(url) || !URL.canParse(url)) {
      const hint = "give it with its scheme, such as http://127.0.0.1:7880";
      throw new SandtimerError({ code: "bad_url", message: `\`${url}\` is not the address of a server`, hint });
    }
    this.#base = url.replace(/\/+$/, "");
    this.#token = options.token ?? environment("SANDTIMER_TOKEN");
    // Browsers refuse a fetch that is called as a method of something else.
    this.#fetch = options.fetch ?? ((...given) => globalThis.fetch(...given));
    this.#webSocket = options.webSocket ?? (globalThis as { WebSocket?: WebSocketClass }).WebSocket;
  }

  /** What listens to a WebSocket to a path, once that is open. */
  async webSocket<Listener>(path: string, listener: (socket: WebSocketLike) => Listener, signal?: AbortSignal): Promise<Listener> {
    if (this.#webSocket === undefined) {
      const hint = "give one as `webSocket`: that of the package `ws`; or use Node 22, or 20 with --experimental-websocket";
      throw new SandtimerError({ code: "no_web_socket", message: "this runtime has no WebSocket", hint });
    }
    signal?.throwIfAborted();
    // Browsers allow no headers here.
    const token = this.#token === undefined ? [] : [`sandtimer.token.${base64url(this.#token)}`];
    const socket = new this.#webSocket(this.#base.replace(/^http/, "ws") + path, ["sandtimer", ...token]);
    socket.binaryType = "arraybuffer";
    // Before it is open: the first messages may come with that.
    const listening = listener(socket);
    try {
      await opened(socket, signal);
      return listening;
    } catch (error) {
      socket.close();
      signal?.throwIfAborted();
      // The reason of a rejection is not shown there; a request without a WebSocket returns it.
      await this.get(path, signal).catch((refused: unknown) => {
        if (!(refused instanceof SandtimerError && refused.code === "upgrade_required")) throw refused;
      });
      throw error;
    }
  }

  get<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
    return this.#json(path, { signal });
  }

  post<Answer>(path: string, body: object, signal?: AbortSignal): Promise<Answer> {
    return this.#json(path, { method: "POST", body, signal });
  }

  put<Answer>(path: string, content: Content, signal?: AbortSignal): Promise<Answer> {
    return this.#json(path, { method: "PUT", content, signal });
  }

  putJson<Answer>(path: string, body: object, signal?: AbortSignal): Promise<Answer> {
    return this.#json(path, { method: "PUT", body, signal });
  }

  postContent<Answer>(path: string, content: Content, signal?: AbortSignal): Promise<Answer> {
    return this.#json(path, { method: "POST", content, signal });
  }

  /** The bytes of an answer, as they come. */
  async *bytes(path: string, signal?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    const response = await this.#send(path, { signal });
    const reader = response.body?.getReader();
    if (reader === undefined) return;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield value;
      }
    } catch (error) {
      throw broken(error, signal);
    } finally {
      // A connection that broke has nothing to cancel.
      await reader.cancel().catch(() => undefined);
    }
  }

  /** Events of one connection, whose position is lost when it breaks. */
  async *changes(path: string, signal?: AbortSignal): AsyncGenerator<ServerEvent, void, undefined> {
    const response = await this.#send(path, { headers: { Accept: "text/event-stream" }, signal });
    try {
      yield* eventsOf(response);
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    }
  }

  delete<Answer = void>(path: string, signal?: AbortSignal): Promise<Answer> {
    return this.#json(path, { method: "DELETE", signal });
  }

  /** As `get`, or as `post` where there is a body, for what only waits, and may be asked again when the connection breaks. */
  async patient<Answer>(path: string, signal?: AbortSignal, body?: object): Promise<Answer> {
    const patience = new Patience(signal);
    for (;;) {
      try {
        return body === undefined ? await this.get<Answer>(path, signal) : await this.post<Answer>(path, body, signal);
      } catch (error) {
        await patience.after(error);
      }
    }
  }

  /**
   * Events after `after`, to the one that `isLast`. When the connection breaks it is made again, and the server continues
   * after the last event that was read: none is lost, none is sent twice.
   */
  async *events(
    path: string,
    after: string | undefined,
    isLast: (event: ServerEvent) => boolean,
    signal?: AbortSignal,
  ): AsyncGenerator<ServerEvent, void, undefined> {
    let last = after;
    let patience = new Patience(signal);
    for (;;) {
      try {
        const response = await this.#send(path, {
          headers: { Accept: "text/event-stream", ...(last === undefined ? {} : { "Last-Event-ID": last }) },
          signal,
        });
        // It has had the last one.
        if (response.status === 204) return;
        for await (const event of eventsOf(response)) {
          last = event.id;
          patience = new Patience(signal);
          yield event;
          if (isLast(event)) return;
        }
        throw unreachable("the stream ended before its last event");
      } catch (error) {
        await patience.after(error);
      }
    }
  }

  async #json<Answer>(path: string, request: Request): Promise<Answer> {
    const response = await this.#send(path, request);
    const text = await textOf(response, request.signal);
    // Nothing is answered where there is nothing to say.
    if (text === "") return undefined as Answer;
    try {
      return JSON.parse(text) as Answer;
    } catch {
      throw refusal(response.status, text);
    }
  }

  /** The answer, if it is none of an error. */
  async #send(path: string, { method = "GET", body, content, headers, signal }: Request): Promise<Response> {
    const sent: RequestInit = { method, headers: { ...headers }, redirect: "error", cache: "no-store" };
    const names = sent.headers as Record<string, string>;
    if (this.#token !== undefined) names["Authorization"] = `Bearer ${this.#token}`;
    if (body !== undefined) {
      names["Content-Type"] = "application/json";
      sent.body = JSON.stringify(body);
    }
    if (content !== undefined) {
      names["Content-Type"] = "application/octet-stream";
      // Types of before TypeScript 5.7 know one kind of Uint8Array, and later ones two.
      sent.body = content as BodyInit;
      // Asked for by the standard where a body is a stream.
      if (content instanceof ReadableStream) (sent as { duplex?: string }).duplex = "half";
    }
    if (signal !== undefined) sent.signal = signal;
    let response: Response;
    try {
      response = await this.#fetch(this.#base + path, sent);
    } catch (error) {
      // The caller's own wish, which is thrown as it was given.
      if (signal?.aborted === true) throw signal.reason;
      throw unreachable(`${this.#base} does not answer`, error);
    }
    if (response.ok) return response;
    throw refusal(response.status, await textOf(response, signal));
  }
}

async function textOf(response: Response, signal: AbortSignal | undefined): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    throw broken(error, signal);
  }
}

/** What to throw when an answer ends too soon. */
function broken(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted === true) return signal.reason;
  return unreachable("the connection broke in the middle of an answer", error);
}

async function* eventsOf(response: Response): AsyncGenerator<ServerEvent, void, undefined> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await spoken(reader);
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    // A connection that broke has nothing to cancel.
    await reader.cancel().catch(() => undefined);
  }
}

/** The next bytes, which a living server does not keep one waiting for. */
async function spoken(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<ReadableStreamReadResult<Uint8Array>> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(unreachable("the stream fell silent")), SILENCE_MS);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    throw error instanceof SandtimerError ? error : unreachable("the connection broke in the middle of a stream", error);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits before each further try, longer each time, until there were enough. */
class Patience {
  #tries = 0;
  readonly #signal: AbortSignal | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  /** Returns when to try again, or throws what ended the last try: always, if it would end the next one too. */
  async after(error: unknown): Promise<void> {
    this.#signal?.throwIfAborted();
    const pause = PAUSES_MS[this.#tries];
    if (!(error instanceof SandtimerError) || !error.retryable || pause === undefined) throw error;
    this.#tries += 1;
    // Readers that broke off together do not come back together.
    await sleep(pause * (0.5 + Math.random() / 2), this.#signal);
  }
}

function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

function opened(socket: WebSocketLike, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = () => reject(signal?.reason as Error);
    // A signal may live longer than many connections.
    const settled = (settle: () => void) => () => {
      signal?.removeEventListener("abort", aborted);
      settle();
    };
    const failed = settled(() => reject(unreachable("the WebSocket was not opened")));
    socket.addEventListener("open", settled(resolve));
    socket.addEventListener("error", failed);
    socket.addEventListener("close", failed);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

function base64url(text: string): string {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @internal */
export function unreachable(message: string, cause?: unknown): UnreachableError {
  // The error of fetch reports only that it failed; its cause has the reason.
  const why = cause instanceof Error ? (cause.cause instanceof Error ? cause.cause : cause) : undefined;
  const hint = "see that the server runs (`sandtimer serve`) and that the address is its own";
  const shown = why === undefined ? message : `${message}: ${why.message || why.name}`;
  return new UnreachableError({ code: "unreachable", message: shown, hint, retryable: true, cause });
}

/** A variable of the environment; browsers have none. */
function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}
