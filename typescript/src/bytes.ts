/** Output as it travels, text or base64, back to what it was. */

import type { Chunk, Encoding, Input, RunEvent, Stream } from "./types.js";

/** The bytes of what came as `data` in `encoding`: an event's, a piece's, or an outcome's `stdout`. */
export function bytesOf(data: string, encoding: Encoding): Uint8Array {
  if (encoding === "utf-8") return new TextEncoder().encode(data);
  return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
}

/** @internal What is to be read from stdin, as JSON can hold it. */
export function inputOf<Name extends string>(name: Name, encoding: string, data: Input | undefined): Record<string, string> {
  if (data === undefined) return {};
  if (typeof data === "string") return { [name]: data };
  // In parts: the number of arguments of a call is limited.
  let text = "";
  for (let at = 0; at < data.length; at += 8192) text += String.fromCharCode(...data.subarray(at, at + 8192));
  return { [name]: btoa(text), [encoding]: "base64" };
}

/** Makes pieces of output from the events of a run. */
export class Chunks {
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  readonly #dropped = { stdout: 0, stderr: 0 };

  /** The piece that an event holds, if it holds one. */
  of(event: RunEvent): Chunk | undefined {
    if (event.event === "lagged") {
      this.#dropped[event.data.stream] += event.data.dropped;
      // The next piece does not continue the one before.
      this.#decoders[event.data.stream].decode();
      return undefined;
    }
    if (event.event !== "stdout" && event.event !== "stderr") return undefined;
    const stream = event.event;
    const bytes = bytesOf(event.data.data, event.data.encoding);
    const text = this.#decoders[stream].decode(bytes, { stream: true });
    const dropped = this.#dropped[stream];
    this.#dropped[stream] = 0;
    return { stream, text, bytes, cursor: event.data.cursor, dropped };
  }

  /** What is left when all events were had: the half of a character with which a stream ended. */
  end(): Chunk[] {
    const streams: Stream[] = ["stdout", "stderr"];
    const rest = streams.map((stream) => ({ stream, text: this.#decoders[stream].decode(), bytes: new Uint8Array(), cursor: 0, dropped: 0 }));
    return rest.filter((chunk) => chunk.text !== "");
  }
}

/** Pieces of bytes as one. */
export async function joined(pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  let size = 0;
  for await (const piece of pieces) {
    all.push(piece);
    size += piece.length;
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of all) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
