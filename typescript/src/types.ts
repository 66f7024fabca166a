/**
 * The shapes of what is sent and answered, under short names. All but the events come from the server's own description,
 * `openapi.ts`, which is generated: names and units here are those of every other wire format of Sandtimer.
 */

import type { components } from "./openapi.js";

type Schemas = components["schemas"];
/** The names of interfaces are shown by editors and in the reference; those of indexed types are not. */
type Schema<Name extends keyof Schemas> = Schemas[Name];

/** A limit: absent inherits; 0, null or "unlimited" is none; texts may have a unit, such as "2s" or "512M". */
export type Limit = Schemas["Limit"];
/** The result of a run. A timeout, a crash or an exit code other than 0 is data here, never an error. */
export interface Outcome extends Schema<"Outcome"> {}
/** Why Sandtimer ended a run. */
export interface Verdict extends Schema<"Verdict"> {}
/** How a run ended. */
export type Ending = Schemas["Ending"];
/** The encoding of output: text, or base64 for bytes that are not UTF-8. */
export type Encoding = Schemas["Encoding"];
/** The limits of a run, each with its source. */
export interface Effective extends Schema<"Effective"> {}
/** A run as the server knows it; `outcome` is there once it has ended. */
export interface RunInfo extends Schema<"Run"> {}
/** A run in a listing. */
export interface RunSummary extends Schema<"RunSummary"> {}
/** A listing of runs. */
export interface RunList extends Schema<"RunList"> {}
/** A program and the cases that it is judged by. */
export interface JudgeRequest extends Schema<"JudgeRequest"> {}
/** The result of one program on all cases. */
export interface Judgement extends Schema<"Judgement"> {}
/** A piece of output, by its position in the stream. */
export interface OutputPiece extends Schema<"Output"> {}
/** The state of a context or session. */
export interface ContextInfo extends Schema<"Context"> {}
/** What the machine of the server can enforce. */
export interface Host extends Schema<"Host"> {}
/** The settings and default limits of a server. */
export interface Config extends Schema<"Config"> {}
/** The state of a server. */
export interface Health extends Schema<"Health"> {}
/** The new limit of a run that was extended. */
export interface Extended extends Schema<"Extended"> {}
/** How much of a write to stdin was taken. */
export interface Written extends Schema<"Written"> {}
/** The result of a wait for a line. */
export interface WaitedForLine extends Schema<"WaitedForLine"> {}
/** The result of a wait for a port. */
export interface WaitedForPort extends Schema<"WaitedForPort"> {}
/** Where a line is waited for: stdout and position 0 unless given; and how long, without end unless given. */
export type LineOptions = Readonly<Pick<Schemas["Wait"], "stream" | "cursor" | "wait_ms">>;
/** A job to be submitted: a command, code, steps or a loop, its limits, and when it is done. */
export interface JobRequest extends Schema<"JobRequest"> {}
/** A schedule to be stored: a job that recurs, and when it is due. */
export interface JobScheduleRequest extends Schema<"JobScheduleRequest"> {}
/** A schedule: a job that recurs. */
export interface JobSchedule extends Schema<"JobSchedule"> {}
/** A circuit breaker that jobs share. */
export interface JobBreaker extends Schema<"JobBreaker"> {}
/** A listing of breakers. */
export interface JobBreakers extends Schema<"JobBreakers"> {}
/** A live worker of the store: its slots, version, queues, handlers and jobs. */
export type JobWorker = Schemas["JobWorkers"]["workers"][number];
/** The webhook of a job that is sent again. */
export interface JobRedelivered extends Schema<"JobRedelivered"> {}
/** Everything about a job. `ended_ms` and `result` are present once it has ended. */
export interface JobInfo extends Schema<"Job"> {}
/** A job in a listing. */
export interface JobSummary extends Schema<"JobSummary"> {}
/** A listing of jobs. */
export interface JobList extends Schema<"JobList"> {}
/** The result of a job, or of one of its deliveries. */
export interface JobResult extends Schema<"JobResult"> {}
/** The state of a job. */
export type JobState = Schemas["JobState"];
/** A part of the output of a job. */
export interface JobLog extends Schema<"JobLog"> {}
/** An output file of a job. */
export interface JobFile extends Schema<"JobFile"> {}
/** The output files of a job, and those that were not stored. */
export interface JobFiles extends Schema<"JobFiles"> {}
/** What a cancel did to a job. */
export interface JobCancelled extends Schema<"JobCancelled"> {}
/** The state of a job that was queued again. */
export interface JobRetried extends Schema<"JobRetried"> {}
/** The codes of a server's errors. */
export type ErrorCode = Schemas["Error"]["code"];

/** A workspace in a listing: a directory of the server that runs, contexts and sessions can work in, and that outlives them. */
export interface WorkspaceInfo extends Schema<"Workspace"> {}
/** The state of a workspace, with its size. */
export interface WorkspaceDetails extends Schema<"WorkspaceDetails"> {}
/** A sandbox to be made: its template, its network, and the limits of its life. */
export interface SandboxRequest extends Schema<"SandboxRequest"> {}
/** The state of a sandbox. */
export interface SandboxInfo extends Schema<"Sandbox"> {}
/** A TCP port on which something in a sandbox listens, with the addresses of its sockets. */
export type SandboxPort = Schemas["SandboxPorts"]["ports"][number];
/** A link to a port of a sandbox, which needs no token. */
export interface SandboxLink extends Schema<"SandboxLink"> {}
/** What has changed in a sandbox against its template. */
export interface SandboxChanges extends Schema<"SandboxDiff"> {}
/** A file, directory or link of a sandbox that was added, changed or deleted. */
export interface SandboxChange extends Schema<"SandboxChange"> {}
/** What sandboxes can be made from. */
export interface Template extends Schema<"Template"> {}
/** A template that was made from an archive. */
export interface ImportedTemplate extends Schema<"ImportedTemplate"> {}
/** A file, directory or link. */
export interface FileEntry extends Schema<"FileEntry"> {}
/** The entry of a file that was written. */
export interface FileWritten extends Schema<"FileWritten"> {}
/** The entry of a file that was appended to. */
export interface FileAppended extends Schema<"FileAppended"> {}
/** What was unpacked from an archive. */
export interface ArchiveUnpacked extends Schema<"ArchiveUnpacked"> {}

/** The method that is called decides on these fields. */
type Waiting = "wait_ms" | "turn_ms" | "attached" | "detach";

/** What is read from stdin; text is UTF-8. */
export type Input = string | Uint8Array;
type Stdin = { readonly stdin?: Input };
type Wire = Waiting | keyof Stdin | "stdin_encoding";

/** A command, or code in a language, that is run to its end. */
export type ForegroundRequest = Omit<Schemas["RunRequest"], Wire | "stdin_open"> & Stdin;
/** The same in the background, where its stdin may stay open. */
export type RunRequest = Omit<Schemas["RunRequest"], Wire> & Stdin;
/** A context to be opened: its language, its limits, and those of its executions. */
export interface ContextRequest extends Schema<"ContextRequest"> {}
/** A session to be opened: its limits, and those of its executions. */
export interface SessionRequest extends Schema<"SessionRequest"> {}
/** Limits and stdin of one execution in a context or session, which is waited for. */
export type CellOptions = Omit<Schemas["CellRequest"], Wire | "stdin_open" | "code"> & Stdin;
/** The same in the background, where its stdin may stay open. */
export type BackgroundCellOptions = Omit<Schemas["CellRequest"], Wire | "code"> & Stdin;

/** Branches of a context: how many, and their limits, where those are not its own. */
export interface BranchOptions extends Schema<"BranchRequest"> {}

/** An execution in a context: the outcome, and what happened to the context since the one before. */
export type CellOutcome = Outcome & { readonly notes: readonly string[] };

/** A stream of output. */
export type Stream = "stdout" | "stderr";

interface At<Name extends string, Data> {
  readonly event: Name;
  /** The position of the reader after this event, for `events({ after: id })`. */
  readonly id: string;
  readonly data: Data;
}

interface Said {
  readonly cursor: number;
  readonly next_cursor: number;
  readonly data: string;
  readonly encoding: Encoding;
}

/** An event of a run. */
export type RunEvent =
  | At<"started", { readonly run_id: string; readonly created_at_ms: number; readonly effective: Effective }>
  | At<"stdout", Said>
  | At<"stderr", Said>
  | At<"warning", { readonly kind: "wall" | "cpu" | "stall"; readonly message: string; readonly left_ms?: number; readonly quiet_ms?: number }>
  | At<"lagged", { readonly stream: Stream; readonly dropped: number; readonly next_cursor: number }>
  | At<"ended", RunEnd>;

/** An event of a job. */
export type JobEvent =
  | At<"state", JobSummary>
  | At<"log", Said>
  /** Without the output, which came before. */
  | At<"ended", JobSummary & { readonly result: (Omit<JobResult, "outcome"> & { readonly outcome: Omit<Outcome, "stdout" | "stderr"> | null }) | null }>;

/** How a run ended. */
export interface RunEnd {
  readonly run_id: string;
  readonly status: "ended";
  readonly ended_at_ms: number;
  /** Without the output, which came before. */
  readonly outcome: Omit<Outcome, "stdout" | "stderr">;
}

/** What becomes of output that is not UTF-8: it is base64 ("strict", unless given), or each such sequence of bytes becomes U+FFFD. */
export interface TextErrors {
  readonly errors?: "strict" | "replace";
}

/** What changes in a directory; `path` is relative to the workspace. Both halves of a move have the same `cookie`. */
export interface FileChange {
  readonly event: "ready" | "created" | "modified" | "attributes" | "deleted" | "moved_from" | "moved_to" | "lagged" | "unwatched";
  readonly path: string | null;
  readonly directory?: boolean;
  /** Of "ready" and "unwatched": how many directories are watched. */
  readonly directories?: number;
  /** Of "unwatched": an owner's watches are used up, the directory is shut, or more than 64 levels deep. */
  readonly reason?: "full" | "closed" | "deep";
  readonly cookie?: number | null;
}

/** A part of the output of a run. */
export interface Chunk {
  readonly stream: Stream;
  /** The text. Characters that are split between two chunks are in the second one; bytes that are not UTF-8 become U+FFFD. */
  readonly text: string;
  readonly bytes: Uint8Array;
  /** Position of the first byte in its stream. */
  readonly cursor: number;
  /** Bytes before it that the server no longer had: past the run's output limit. */
  readonly dropped: number;
}

/** How a call is aborted. */
export interface Waitable {
  /** Of a foreground run: cancels it. Of everything else: ends the waiting. What is thrown is the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}
