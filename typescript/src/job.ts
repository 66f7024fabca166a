/** Jobs: durable work, which outlives this client and the server. */

import { joined } from "./bytes.js";
import type { Http } from "./http.js";
import { WAIT_MS, query } from "./run.js";
import type { JobCancelled, JobEvent, JobFiles, JobInfo, JobLog, JobRedelivered, JobRetried, TextErrors, Waitable } from "./types.js";

/** A job of a server. It outlives the client. */
export class Job {
  readonly #http: Http;
  readonly #path: string;

  /** @internal */
  constructor(
    http: Http,
    /** The id of the job. */
    readonly id: string,
  ) {
    this.#http = http;
    this.#path = `/v1/jobs/${encodeURIComponent(id)}`;
  }

  /** Returns everything about the job. `errors`: how output that is not UTF-8 is encoded. */
  info({ signal, ...asked }: Waitable & TextErrors = {}): Promise<JobInfo> {
    return this.#http.get(`${this.#path}${query(asked)}`, signal);
  }

  /** Waits for the end of the job, also through a restart of the server. An abort ends the wait, not the job. */
  async wait({ signal, ...asked }: Waitable & TextErrors = {}): Promise<JobInfo> {
    for (;;) {
      const info = await this.#http.patient<JobInfo>(`${this.#path}${query({ wait_ms: WAIT_MS, ...asked })}`, signal);
      if (info.ended_ms !== null) return info;
    }
  }

  /**
   * Iterates over the states and the output of the job, from the first event or after the one with the id `after`. If the
   * connection breaks or the server restarts, the reader continues at its position.
   */
  async *events({ after, signal, ...asked }: Waitable & TextErrors & { readonly after?: string } = {}): AsyncGenerator<JobEvent, void, undefined> {
    const all = this.#http.events(`${this.#path}/events${query(asked)}`, after, (event) => event.event === "ended", signal);
    for await (const { id, event, data } of all) {
      yield { id, event, data: JSON.parse(data) } as JobEvent;
    }
  }

  /** Returns a part of the output so far. `next_cursor` is the position of the next part. `timestamps`: with the time before each line. */
  readLog(
    options: Waitable & TextErrors & { readonly cursor?: number; readonly max_bytes?: number; readonly timestamps?: boolean } = {},
  ): Promise<JobLog> {
    const { signal, ...asked } = options;
    return this.#http.get(`${this.#path}/log${query(asked)}`, signal);
  }

  /** Returns the output files of the job, and those that were not stored; none while the job is active. */
  files({ signal }: Waitable = {}): Promise<JobFiles> {
    return this.#http.get(`${this.#path}/files`, signal);
  }

  /** Returns the bytes of an output file. */
  async readFile(name: string, options: Waitable = {}): Promise<Uint8Array> {
    return joined(this.streamFile(name, options));
  }

  /** Iterates over the bytes of an output file, as they arrive. */
  streamFile(name: string, { signal }: Waitable = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const path = name.split("/").map(encodeURIComponent).join("/");
    return this.#http.bytes(`${this.#path}/files/${path}`, signal);
  }

  /** Cancels the job and ends all processes that it started. If it has ended, the call has no effect. */
  cancel(options: { readonly reason?: string; readonly wait_ms?: number } = {}): Promise<JobCancelled> {
    return this.#http.post(`${this.#path}/cancel`, options);
  }

  /** Queues a job again that did not succeed. Its deadline counts from now. */
  retry(): Promise<JobRetried> {
    return this.#http.post(`${this.#path}/retry`, {});
  }

  /** Sends the webhook of the job again, at once. The job must have ended. */
  redeliver(): Promise<JobRedelivered> {
    return this.#http.post(`${this.#path}/redeliver`, {});
  }
}
