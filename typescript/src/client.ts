/** The way into a server: what is asked of it as a whole, and where runs, contexts and sessions come from. */

import { Context } from "./context.js";
import { Http, type ClientOptions } from "./http.js";
import { Workspace } from "./files.js";
import { Job } from "./job.js";
import { Run, WAIT_MS, asked, query } from "./run.js";
import type {
  Config,
  ContextInfo,
  ContextRequest,
  ForegroundRequest,
  Health,
  Host,
  JobList,
  JobRequest,
  JobSchedule,
  JobScheduleRequest,
  JobState,
  Outcome,
  RunInfo,
  RunList,
  RunRequest,
  SessionRequest,
  Waitable,
  WorkspaceInfo,
} from "./types.js";

/**
 * A client of a Sandtimer server.
 *
 * ```ts
 * const client = new Client({ url: "http://127.0.0.1:7880" });
 * const outcome = await client.run({ command: ["echo", "hello"], wall_ms: 2000 });
 * ```
 */
export class Client {
  readonly #http: Http;

  constructor(options: ClientOptions = {}) {
    this.#http = new Http(options);
  }

  /**
   * Runs a command, or code in a language, and waits for its end, however long that takes: what bounds it are its limits,
   * which the server keeps. An abort cancels it.
   */
  async run(request: ForegroundRequest, { signal }: Waitable = {}): Promise<Outcome> {
    const info = await this.#http.post<RunInfo>("/v1/runs", { ...asked(request), wait_ms: WAIT_MS, attached: true }, signal);
    return info.outcome ?? new Run(this.#http, info.run_id).waitOrCancel({ signal });
  }

  /** Starts a run in the background. It goes on whether or not anyone listens, until it ends or a limit ends it. */
  async start(request: RunRequest, { signal }: Waitable = {}): Promise<Run> {
    const info = await this.#http.post<RunInfo>("/v1/runs", { ...asked(request), wait_ms: 0 }, signal);
    return new Run(this.#http, info.run_id);
  }

  /** Your runs, the newest first, ended ones too. */
  runs(options: Waitable & { readonly status?: "running" | "ended"; readonly limit?: number } = {}): Promise<RunList> {
    const { signal, ...asked } = options;
    return this.#http.get(`/v1/runs${query(asked)}`, signal);
  }

  /** The run with this id, which is not looked for until something is asked of it. */
  attach(id: string): Run {
    return new Run(this.#http, id);
  }

  /** Opens a live interpreter. */
  async context(request: ContextRequest = {}, { signal }: Waitable = {}): Promise<Context> {
    const info = await this.#http.post<ContextInfo>("/v1/contexts", request, signal);
    return new Context(this.#http, "contexts", info.context_id);
  }

  /** Your contexts, sessions among them. */
  async contexts({ signal }: Waitable = {}): Promise<ContextInfo[]> {
    return (await this.#http.get<{ contexts: ContextInfo[] }>("/v1/contexts", signal)).contexts;
  }

  /** The context with this id. */
  attachContext(id: string): Context {
    return new Context(this.#http, "contexts", id);
  }

  /** Opens a live shell, which keeps directory, variables, functions and options. */
  async session(request: SessionRequest = {}, { signal }: Waitable = {}): Promise<Context> {
    const info = await this.#http.post<ContextInfo>("/v1/sessions", request, signal);
    return new Context(this.#http, "sessions", info.context_id);
  }

  /** Your sessions. */
  async sessions({ signal }: Waitable = {}): Promise<ContextInfo[]> {
    return (await this.#http.get<{ contexts: ContextInfo[] }>("/v1/sessions", signal)).contexts;
  }

  /** The session with this id. */
  attachSession(id: string): Context {
    return new Context(this.#http, "sessions", id);
  }

  /** Submits a job: work that outlives this client and the server. A request with `map` is several jobs: see `submitAll`. */
  async submit(request: JobRequest, options: Waitable = {}): Promise<Job> {
    if (request.map !== undefined) throw new TypeError("map: the request is a job for each of its items; use submitAll");
    const [job] = await this.submitAll([request], options);
    return job as Job;
  }

  /** Submits jobs, all of them or none. A request with `map` is one job for each of its items, and one more for `map.then`. */
  async submitAll(requests: readonly JobRequest[], { signal }: Waitable = {}): Promise<Job[]> {
    const { jobs } = await this.#http.post<{ jobs: { job_id: string }[] }>("/v1/jobs", requests, signal);
    return jobs.map((job) => new Job(this.#http, job.job_id));
  }

  /** Your jobs, the latest submission first; `next` is the `cursor` of the next part. */
  jobs(
    options: Waitable & { readonly queue?: string; readonly state?: JobState; readonly limit?: number; readonly cursor?: string } = {},
  ): Promise<JobList> {
    const { signal, ...asked } = options;
    return this.#http.get(`/v1/jobs${query(asked)}`, signal);
  }

  /** Stores a schedule, a job that recurs, in place of the one of its name. */
  schedule(name: string, request: JobScheduleRequest, { signal }: Waitable = {}): Promise<JobSchedule> {
    return this.#http.putJson(`/v1/jobs/schedules/${encodeURIComponent(name)}`, request, signal);
  }

  /** Your schedules, and when each is due next. */
  async schedules({ signal }: Waitable = {}): Promise<JobSchedule[]> {
    return (await this.#http.get<{ schedules: JobSchedule[] }>("/v1/jobs/schedules", signal)).schedules;
  }

  /** Removes a schedule; the jobs that it has submitted stay. Returns whether there was one. */
  async unschedule(name: string, { signal }: Waitable = {}): Promise<boolean> {
    const path = `/v1/jobs/schedules/${encodeURIComponent(name)}`;
    return (await this.#http.delete<{ removed: boolean }>(path, signal)).removed;
  }

  /** The job with this id. */
  attachJob(id: string): Job {
    return new Job(this.#http, id);
  }

  /** Makes a workspace: a directory that runs (`workspace: id`), contexts and sessions can work in, and that outlives them. */
  async workspace({ signal }: Waitable = {}): Promise<Workspace> {
    return new Workspace(this.#http, (await this.#http.post<WorkspaceInfo>("/v1/workspaces", {}, signal)).workspace_id);
  }

  /** Your workspaces, the oldest first. */
  async workspaces({ signal }: Waitable = {}): Promise<WorkspaceInfo[]> {
    return (await this.#http.get<{ workspaces: WorkspaceInfo[] }>("/v1/workspaces", signal)).workspaces;
  }

  /** The workspace with this id. */
  attachWorkspace(id: string): Workspace {
    return new Workspace(this.#http, id);
  }

  /** What the server's machine can enforce. */
  host({ signal }: Waitable = {}): Promise<Host> {
    return this.#http.get("/v1/host", signal);
  }

  /** Every setting and default limit of the server, and where it comes from. */
  config({ signal }: Waitable = {}): Promise<Config> {
    return this.#http.get("/v1/config", signal);
  }

  /** Whether it is there; asks for no token. */
  health({ signal }: Waitable = {}): Promise<Health> {
    return this.#http.get("/healthz", signal);
  }
}
