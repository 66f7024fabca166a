/** Uses every public name of the package; only its types are checked, by `tsc`. names.test.ts tests that none is missing. */

import {
  Client,
  Context,
  Files,
  Job,
  Run,
  Sandbox,
  SandtimerError,
  Terminal,
  UnauthorizedError,
  UnreachableError,
  Workspace,
  bytesOf,
  type ArchiveUnpacked,
  type BackgroundCellOptions,
  type BranchOptions,
  type CellOptions,
  type CellOutcome,
  type Chunk,
  type ClientOptions,
  type Config,
  type Content,
  type ContextInfo,
  type ContextRequest,
  type Effective,
  type Encoding,
  type Ending,
  type ErrorCode,
  type Extended,
  type FileAppended,
  type FileChange,
  type FileEntry,
  type FileWritten,
  type ForegroundRequest,
  type Health,
  type Host,
  type ImportedTemplate,
  type Input,
  type JobCancelled,
  type JobEvent,
  type JobFile,
  type JobFiles,
  type JobInfo,
  type JobBreaker,
  type JobBreakers,
  type JobList,
  type JobLog,
  type JobRequest,
  type JobResult,
  type JobRetried,
  type JobSchedule,
  type JobScheduleRequest,
  type JobRedelivered,
  type JobWorker,
  type JobState,
  type JobSummary,
  type Judgement,
  type JudgeRequest,
  type Limit,
  type LineOptions,
  type Outcome,
  type OutputPiece,
  type RunEnd,
  type RunEvent,
  type RunInfo,
  type RunList,
  type RunRequest,
  type RunSummary,
  type SandboxChange,
  type SandboxChanges,
  type SandboxInfo,
  type SandboxLink,
  type SandboxPort,
  type SandboxRequest,
  type SessionRequest,
  type Stream,
  type Template,
  type TerminalOptions,
  type TextErrors,
  type Verdict,
  type Waitable,
  type WaitedForLine,
  type WaitedForPort,
  type WebSocketClass,
  type WebSocketLike,
  type WorkspaceDetails,
  type WorkspaceInfo,
  type Written,
} from "sandtimer";

export async function ofClient(socket: WebSocketClass, waitable: Waitable): Promise<unknown[]> {
  const options: ClientOptions = { url: "http://127.0.0.1:7880", token: "secret", webSocket: socket };
  const client = new Client(options);
  const limit: Limit = "2s";
  const request: ForegroundRequest = { command: ["echo", "hello"], wall_ms: limit };
  const background: RunRequest = { command: "cat", stdin_open: true };
  const outcome: Outcome = await client.run(request, waitable);
  const judging: JudgeRequest = { code: "print(1)", cases: [{ stdin: "", expected: "1" }], wall_ms: 1000, stop_early: true };
  const judgement: Judgement = await client.judge(judging, waitable);
  console.log(judgement.cases[0]?.verdict);
  const run: Run = await client.start(background);
  const runs: RunList = await client.runs({ status: "ended", limit: 10 });
  const first: RunSummary | undefined = runs.runs[0];
  const context: Context = await client.context({ language: "python" } satisfies ContextRequest);
  const session: Context = await client.session({ wall_ms: 1000 } satisfies SessionRequest);
  const contexts: ContextInfo[] = [...(await client.contexts()), ...(await client.sessions())];
  const host: Host = await client.host();
  const config: Config = await client.config();
  const health: Health = await client.health();
  const workspace: Workspace = await client.workspace();
  const workspaces: WorkspaceInfo[] = await client.workspaces();
  const attached = [client.attach(run.id), client.attachContext("c"), client.attachSession("s"), client.attachWorkspace("w")];
  return [outcome, first, context, session, contexts, host, config, health, workspace, workspaces, attached];
}

export async function ofRun(run: Run): Promise<unknown[]> {
  const info: RunInfo = await run.info();
  const effective: Effective = info.effective;
  for await (const event of run.events()) {
    const happened: RunEvent = event;
    if (happened.event === "ended") {
      const end: RunEnd = happened.data;
      return [end.outcome];
    }
  }
  for await (const chunk of run.output({ stream: "stdout" })) {
    const piece: Chunk = chunk;
    const stream: Stream = piece.stream;
    return [stream, piece.text];
  }
  const errors: TextErrors = { errors: "replace" };
  const output: OutputPiece = await run.readOutput({ cursor: 0, max_bytes: 100, ...errors });
  const encoding: Encoding = output.encoding;
  const bytes: Uint8Array = bytesOf(output.data, encoding);
  const where: LineOptions = { stream: "stdout", wait_ms: 1000 };
  const line: WaitedForLine = await run.waitForLine("ready", where);
  const port: WaitedForPort = await run.waitForPort(8000, { wait_ms: 1000 });
  const extended: Extended = await run.extend(1000);
  const input: Input = new Uint8Array([10]);
  const written: Written = await run.write(input, { eof: true });
  await run.pause();
  await run.resume();
  await run.signal("SIGUSR1");
  const killed: RunInfo = await run.kill({ reason: "enough" });
  const outcome: Outcome = await run.wait();
  const ending: Ending = outcome.ending;
  const verdict: Verdict | null = outcome.verdict;
  await run.delete();
  return [effective, bytes, line, port, extended, written, killed, ending, verdict];
}

export async function ofTerminal(run: Run, socket: WebSocketLike): Promise<number> {
  const options: TerminalOptions = { cursor: 0 };
  const terminal: Terminal = await run.terminal(options);
  terminal.write("ls\n");
  terminal.resize(80, 24);
  let count = 0;
  for await (const bytes of terminal) count += bytes.length;
  terminal.close();
  socket.close();
  return count + terminal.cursor + terminal.dropped;
}

export async function ofContext(context: Context): Promise<unknown[]> {
  const options: CellOptions = { wall_ms: 1000, stdin: "a" };
  const background: BackgroundCellOptions = { stdin_open: true };
  const branching: BranchOptions = { count: 2 };
  const cell: CellOutcome = await context.execute("1", options);
  const run: Run = await context.start("1", background);
  const branches: Context[] = await context.branch(branching);
  const info: ContextInfo = await context.info();
  const interrupted: boolean = await context.interrupt();
  const before: ContextInfo = await context.undo();
  await context.close();
  return [context.id, context.files, cell.notes, run, branches, info, interrupted, before];
}

export async function ofFiles(files: Files, workspace: Workspace): Promise<unknown[]> {
  const content: Content = "hello";
  const written: FileWritten = await files.write("a", content, { parents: true });
  const appended: FileAppended = await files.append("a", "b", { create: true });
  const unpacked: ArchiveUnpacked = await files.extract(new Uint8Array(), "d", { links: "inside" });
  const entry: FileEntry = await files.stat("a");
  for await (const listed of files.list(".", { recursive: true })) if (listed.path === entry.path) break;
  for await (const change of files.watch()) {
    const changed: FileChange = change;
    if (changed.event === "ready") break;
  }
  const pieces: Uint8Array[] = [];
  for await (const piece of files.archive()) pieces.push(piece);
  for await (const piece of files.stream("a", { offset: 1 })) pieces.push(piece);
  const read = [await files.read("a"), await files.readText("a"), await files.move("a", "b"), await files.mkdir("d")];
  await files.delete("b", { recursive: true });
  const details: WorkspaceDetails = await workspace.info();
  await workspace.delete();
  return [written, appended, unpacked, pieces, read, details, workspace.id, workspace.files];
}

export async function ofSandbox(client: Client): Promise<unknown[]> {
  const request: SandboxRequest = { template: "host", network: ["pypi.org"], wall_ms: "1h", idle_ms: 60_000 };
  const box: Sandbox = await client.sandbox(request);
  const outcome: Outcome = await box.exec({ command: "true" });
  const run: Run = await box.start({ command: "cat", stdin_open: true });
  const live: Context[] = [await box.context({ language: "python" }), await box.session()];
  const states: SandboxInfo[] = [await box.info(), await box.pause(), await box.resume(), await box.extend(1000)];
  const ports: SandboxPort[] = await box.ports();
  const listening: boolean = await box.waitForPort(8000, { wait_ms: 100 });
  const link: SandboxLink = await box.expose(8000, { ttl_ms: 60_000 });
  const template: Template = await box.snapshot("ready");
  const forks: Sandbox[] = await box.fork(2);
  const changes: SandboxChanges = await box.diff({ limit: 10 });
  const change: SandboxChange | undefined = changes.changes[0];
  for await (const piece of box.export({ changes: true })) if (piece.length === 0) break;
  const imported: ImportedTemplate = await client.importTemplate("imported", new Uint8Array());
  const templates: Template[] = await client.templates();
  await client.deleteTemplate(template.name);
  states.push(...(await client.sandboxes()));
  await client.attachSandbox(box.id).delete();
  return [box.files, outcome, run, live, states, ports, listening, link, forks, change, imported, templates];
}

export async function ofJobs(client: Client): Promise<unknown[]> {
  const request: JobRequest = { command: ["true"] };
  const job: Job = await client.submit(request);
  const jobs: Job[] = await client.submitAll([request]);
  const state: JobState = "queued";
  const list: JobList = await client.jobs({ queue: "default", state });
  const summary: JobSummary | undefined = list.jobs[0];
  const recurring: JobScheduleRequest = { cron: "@daily", job: request };
  const schedule: JobSchedule = await client.schedule("report", recurring);
  const schedules: JobSchedule[] = await client.schedules();
  schedules.push(await client.pauseSchedule("report"), await client.resumeSchedule("report"));
  const removed: boolean = await client.unschedule("report");
  for await (const event of job.events()) {
    const happened: JobEvent = event;
    if (happened.event === "ended") break;
  }
  const info: JobInfo = await client.attachJob(job.id).info();
  const ended: JobInfo = await job.wait();
  const result: JobResult | null = ended.result;
  const log: JobLog = await job.readLog({ cursor: 0 });
  const files: JobFiles = await job.files();
  const file: JobFile | undefined = files.files[0];
  const content: Uint8Array = await job.readFile("out");
  for await (const piece of job.streamFile("out")) if (piece.length > content.length) break;
  const cancelled: JobCancelled = await job.cancel({ reason: "enough" });
  const retried: JobRetried = await job.retry();
  const redelivered: JobRedelivered = await job.redeliver();
  const page: JobBreakers = await client.breakers({ limit: 10, cursor: "" });
  const breakers: JobBreaker[] = page.breakers;
  const workers: JobWorker[] = await client.jobWorkers();
  return [jobs, summary, schedule, schedules, removed, info, result, log, file, cancelled, retried, redelivered, breakers, workers];
}

export function ofErrors(error: unknown): unknown[] {
  if (error instanceof UnreachableError || error instanceof UnauthorizedError) return [error.message];
  if (!(error instanceof SandtimerError)) return [];
  const code: ErrorCode | string = error.code;
  return [code, error.hint, error.retryable, error.details, error.status];
}
