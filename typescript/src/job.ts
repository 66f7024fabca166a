/** Jobs: durable work, which outlives this client and the server. */

import { joined } from "./bytes.js";
import type { Http } from "./http.js";
import { WAIT_MS, query } from "./run.js";
import type { JobCancelled, JobEvent, JobFiles, JobInfo, JobLog, JobRetried, TextErrors, Waitable } from "./types.js";

/** A job of the server's, by its id. */
export class Job {
  readonly #http: Http;
  readonly #path: string;

  /** @internal */
  constructor(
    http: Http,
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/jobs/${encodeURIComponent(id)}`;
  }

  /** Everything about it, as it is now. `errors`: what becomes of output that is not UTF-8. */
  info({ signal, ...asked }: Waitable & TextErrors = {}): Promise<JobInfo> {
    return this.#http.get(`${this.#path}${query(asked)}`, signal);
  }

  /** Waits until it is over, however long that takes, also through a restart of the server. An abort ends the waiting, not the job. */
  async wait({ signal, ...asked }: Waitable & TextErrors = {}): Promise<JobInfo> {
    for (;;) {
      const info = await this.#http.patient<JobInfo>(`${this.#path}${query({ wait_ms: WAIT_MS, ...asked })}`, signal);
      if (info.ended_ms !== null) return info;
    }
  }

  /**
   * Its states and what it writes, from the beginning or from behind the event with the id `after`, to its end. The connection
   * may break, and the server be started again: the reader goes on where it was.
   */
  async *events({ after, signal, ...asked }: Waitable & TextErrors & { readonly after?: string } = {}): AsyncGenerator<JobEvent, void, undefined> {
    const all = this.#http.events(`${this.#path}/events${query(asked)}`, after, (event) => event.event === "ended", signal);
    for await (const { id, event, data } of all) {
      yield { id, event, data: JSON.parse(data) } as JobEvent;
    }
  }

  /** What it has written so far, from a position: one piece. `next_cursor` is where to go on. `timestamps`: with the time before each line. */
  readLog(
    options: Waitable & TextErrors & { readonly cursor?: number; readonly max_bytes?: number; readonly timestamps?: boolean } = {},
  ): Promise<JobLog> {
    const { signal, ...asked } = options;
    return this.#http.get(`${this.#path}/log${query(asked)}`, signal);
  }

  /** The files that it has left, and what of its `outputs` is not kept; none of them while it goes on. */
  files({ signal }: Waitable = {}): Promise<JobFiles> {
    return this.#http.get(`${this.#path}/files`, signal);
  }

  /** The bytes of a file that it has left. */
  async readFile(name: string, options: Waitable = {}): Promise<Uint8Array> {
    return joined(this.streamFile(name, options));
  }

  /** The same as they come. */
  streamFile(name: string, { signal }: Waitable = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const path = name.split("/").map(encodeURIComponent).join("/");
    return this.#http.bytes(`${this.#path}/files/${path}`, signal);
  }

  /** Ends it and all that it started. Of a job that is over it is no error. */
  cancel(options: { readonly reason?: string; readonly wait_ms?: number } = {}): Promise<JobCancelled> {
    return this.#http.post(`${this.#path}/cancel`, options);
  }

  /** Queues it again, if it did not succeed. Its deadline counts from now. */
  retry(): Promise<JobRetried> {
    return this.#http.post(`${this.#path}/retry`, {});
  }
}
