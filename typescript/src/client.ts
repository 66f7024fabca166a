/** The client: requests that concern a server as a whole, and the start of runs, contexts, sessions and jobs. */

import { Context } from "./context.js";
import { Http, type ClientOptions, type Content } from "./http.js";
import { Workspace } from "./files.js";
import { Job } from "./job.js";
import { Run, WAIT_MS, asked, query } from "./run.js";
import { Sandbox } from "./sandbox.js";
import type {
  Config,
  ContextInfo,
  ContextRequest,
  ForegroundRequest,
  Health,
  Host,
  ImportedTemplate,
  JobBreakers,
  JobList,
  JobRequest,
  JobSchedule,
  JobScheduleRequest,
  JobWorker,
  JobState,
  JudgeRequest,
  Judgement,
  Outcome,
  RunInfo,
  RunList,
  RunRequest,
  SandboxInfo,
  SandboxRequest,
  SessionRequest,
  Template,
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
   * Runs a command, or code in a language, and waits for its end. The wait itself has no limit: the limits of the run bound it,
   * and the server enforces them. An abort cancels the run.
   */
  async run(request: ForegroundRequest, { signal }: Waitable = {}): Promise<Outcome> {
    const info = await this.#http.post<RunInfo>("/v1/runs", { ...asked(request), wait_ms: WAIT_MS, attached: true }, signal);
    return info.outcome ?? new Run(this.#http, info.run_id).waitOrCancel({ signal });
  }

  /**
   * Runs a program on each case, in a run of its own, and compares what it prints with what is expected, which never enters a
   * run. An abort cancels the runs.
   */
  judge(request: JudgeRequest, { signal }: Waitable = {}): Promise<Judgement> {
    return this.#http.post("/v1/judge", request, signal);
  }

  /** Starts a run in the background. It continues, whether or not a client is connected, until it ends or a limit ends it. */
  async start(request: RunRequest, { signal }: Waitable = {}): Promise<Run> {
    const info = await this.#http.post<RunInfo>("/v1/runs", { ...asked(request), wait_ms: 0 }, signal);
    return new Run(this.#http, info.run_id);
  }

  /** Returns the runs of this token, the newest first, including ended ones. `cursor` is the `next` of an earlier part. */
  runs(
    options: Waitable & { readonly status?: "running" | "ended"; readonly limit?: number; readonly cursor?: string } = {},
  ): Promise<RunList> {
    const { signal, ...asked } = options;
    return this.#http.get(`/v1/runs${query(asked)}`, signal);
  }

  /** Returns the run with this id, without a request: an unknown id is noticed by the first use. */
  attach(id: string): Run {
    return new Run(this.#http, id);
  }

  /** Opens a live interpreter. */
  async context(request: ContextRequest = {}, { signal }: Waitable = {}): Promise<Context> {
    const info = await this.#http.post<ContextInfo>("/v1/contexts", request, signal);
    return new Context(this.#http, "contexts", info.context_id);
  }

  /** Returns the contexts of this token, including sessions. */
  async contexts({ signal }: Waitable = {}): Promise<ContextInfo[]> {
    return (await this.#http.get<{ contexts: ContextInfo[] }>("/v1/contexts", signal)).contexts;
  }

  /** Returns the context with this id, without a request. */
  attachContext(id: string): Context {
    return new Context(this.#http, "contexts", id);
  }

  /** Opens a live shell, which retains its directory, variables, functions and options. */
  async session(request: SessionRequest = {}, { signal }: Waitable = {}): Promise<Context> {
    const info = await this.#http.post<ContextInfo>("/v1/sessions", request, signal);
    return new Context(this.#http, "sessions", info.context_id);
  }

  /** Returns the sessions of this token. */
  async sessions({ signal }: Waitable = {}): Promise<ContextInfo[]> {
    return (await this.#http.get<{ contexts: ContextInfo[] }>("/v1/sessions", signal)).contexts;
  }

  /** Returns the session with this id, without a request. */
  attachSession(id: string): Context {
    return new Context(this.#http, "sessions", id);
  }

  /** Submits a job, which outlives this client and the server. A request with `map` is several jobs: use `submitAll`. */
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

  /** Returns the jobs of this token, the latest first. `next` is the `cursor` of the next part. */
  jobs(
    options: Waitable & { readonly queue?: string; readonly state?: JobState; readonly limit?: number; readonly cursor?: string; readonly total?: boolean } = {},
  ): Promise<JobList> {
    const { signal, ...asked } = options;
    return this.#http.get(`/v1/jobs${query(asked)}`, signal);
  }

  /** Stores a schedule, a job that recurs. It replaces the schedule of the same name. */
  schedule(name: string, request: JobScheduleRequest, { signal }: Waitable = {}): Promise<JobSchedule> {
    return this.#http.putJson(`/v1/jobs/schedules/${encodeURIComponent(name)}`, request, signal);
  }

  /** Returns the schedules of this token, and when each is due next. */
  async schedules({ signal }: Waitable = {}): Promise<JobSchedule[]> {
    return (await this.#http.get<{ schedules: JobSchedule[] }>("/v1/jobs/schedules", signal)).schedules;
  }

  /** Pauses a schedule: it submits no jobs. Its running jobs continue. */
  pauseSchedule(name: string, { signal }: Waitable = {}): Promise<JobSchedule> {
    return this.#http.post(`/v1/jobs/schedules/${encodeURIComponent(name)}/pause`, {}, signal);
  }

  /** Resumes a paused schedule. It is due at its next moment; moments that passed have no job. */
  resumeSchedule(name: string, { signal }: Waitable = {}): Promise<JobSchedule> {
    return this.#http.post(`/v1/jobs/schedules/${encodeURIComponent(name)}/resume`, {}, signal);
  }

  /** Removes a schedule; the jobs that it has submitted stay. Returns whether there was one. */
  async unschedule(name: string, { signal }: Waitable = {}): Promise<boolean> {
    const path = `/v1/jobs/schedules/${encodeURIComponent(name)}`;
    return (await this.#http.delete<{ removed: boolean }>(path, signal)).removed;
  }

  /** Returns the circuit breakers that jobs of this token share, by key. `next` is the `cursor` of the next part. */
  breakers(options: Waitable & { readonly limit?: number; readonly cursor?: string } = {}): Promise<JobBreakers> {
    const { signal, ...asked } = options;
    return this.#http.get(`/v1/jobs/breakers${query(asked)}`, signal);
  }

  /** Returns the live workers of the store: their slots, versions, queues, handlers and jobs. For the operator, which a token is not. */
  async jobWorkers({ signal }: Waitable = {}): Promise<JobWorker[]> {
    return (await this.#http.get<{ workers: JobWorker[] }>("/v1/jobs/workers", signal)).workers;
  }

  /** Returns the job with this id, without a request. */
  attachJob(id: string): Job {
    return new Job(this.#http, id);
  }

  /** Makes a workspace: a directory that runs (`workspace: id`), contexts and sessions can work in, and that outlives them. */
  async workspace({ signal }: Waitable = {}): Promise<Workspace> {
    return new Workspace(this.#http, (await this.#http.post<WorkspaceInfo>("/v1/workspaces", {}, signal)).workspace_id);
  }

  /** Returns the workspaces of this token, the oldest first. */
  async workspaces({ signal }: Waitable = {}): Promise<WorkspaceInfo[]> {
    return (await this.#http.get<{ workspaces: WorkspaceInfo[] }>("/v1/workspaces", signal)).workspaces;
  }

  /** Returns the workspace with this id, without a request. */
  attachWorkspace(id: string): Workspace {
    return new Workspace(this.#http, id);
  }

  /**
   * Makes a sandbox: a private file system in which many runs, contexts and sessions work, and which outlives them. `template` is what it is
   * made from: `host`, unless given, or another of `templates`.
   */
  async sandbox(request: SandboxRequest = {}, { signal }: Waitable = {}): Promise<Sandbox> {
    return new Sandbox(this.#http, (await this.#http.post<SandboxInfo>("/v1/sandboxes", request, signal)).sandbox_id);
  }

  /** Returns the sandboxes of this token, the oldest first. */
  async sandboxes({ signal }: Waitable = {}): Promise<SandboxInfo[]> {
    return (await this.#http.get<{ sandboxes: SandboxInfo[] }>("/v1/sandboxes", signal)).sandboxes;
  }

  /** Returns the sandbox with this id, without a request. */
  attachSandbox(id: string): Sandbox {
    return new Sandbox(this.#http, id);
  }

  /** Returns what sandboxes can be made from: the templates of the server, then those of this token, the oldest first. */
  async templates({ signal }: Waitable = {}): Promise<Template[]> {
    return (await this.#http.get<{ templates: Template[] }>("/v1/templates", signal)).templates;
  }

  /** Makes a template of a tar archive that has a root tree; it may be compressed with gzip or zstd. All files belong to the sandbox's user. */
  importTemplate(name: string, archive: Content, { signal }: Waitable = {}): Promise<ImportedTemplate> {
    return this.#http.postContent(`/v1/templates${query({ name })}`, archive, signal);
  }

  /** Deletes a template of this token, by its name or id. Sandboxes that were made from it keep its files. */
  deleteTemplate(name: string, { signal }: Waitable = {}): Promise<void> {
    return this.#http.delete(`/v1/templates/${encodeURIComponent(name)}`, signal);
  }

  /** Returns what the machine of the server can enforce. */
  host({ signal }: Waitable = {}): Promise<Host> {
    return this.#http.get("/v1/host", signal);
  }

  /** Returns every setting and default limit of the server, each with its source. */
  config({ signal }: Waitable = {}): Promise<Config> {
    return this.#http.get("/v1/config", signal);
  }

  /** Returns the state of the server. Needs no token. */
  health({ signal }: Waitable = {}): Promise<Health> {
    return this.#http.get("/healthz", signal);
  }
}
