/** Server-sent events from bytes, as they come. */

export interface ServerEvent {
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/**
 * Takes bytes in pieces of any size and gives the events that are whole. A character, a line or an event may be cut
 * anywhere; what is incomplete when the stream ends never happened.
 */
export class EventParser {
  readonly #decoder = new TextDecoder();
  #rest = "";
  /** How much of `#rest` has no end of a line in it. */
  #looked = 0;
  #id = "";
  #event = "";
  #data: string[] = [];

  feed(bytes: Uint8Array): ServerEvent[] {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    const events: ServerEvent[] = [];
    let from = 0;
    const end = /\r\n|\n|\r/g;
    end.lastIndex = this.#looked;
    for (let found = end.exec(this.#rest); found !== null; found = end.exec(this.#rest)) {
      // The second half of a CR LF may still be on its way.
      if (found[0] === "\r" && end.lastIndex === this.#rest.length) break;
      const event = this.#line(this.#rest.slice(from, found.index));
      if (event !== undefined) events.push(event);
      from = end.lastIndex;
    }
    this.#rest = this.#rest.slice(from);
    this.#looked = this.#rest.endsWith("\r") ? this.#rest.length - 1 : this.#rest.length;
    return events;
  }

  #line(line: string): ServerEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "id") this.#id = value;
    else if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
    return undefined;
  }

  #dispatch(): ServerEvent | undefined {
    const [event, data] = [this.#event, this.#data];
    this.#event = "";
    this.#data = [];
    return data.length === 0 ? undefined : { id: this.#id, event: event || "message", data: data.join("\n") };
  }
}
