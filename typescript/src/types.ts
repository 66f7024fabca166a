/**
 * The shapes of what is sent and answered, under short names. All but the events come from the server's own description,
 * `openapi.ts`, which is generated: names and units here are those of every other wire format of Sandtimer.
 */

import type { components } from "./openapi.js";

type Schemas = components["schemas"];

/** A limit: absent inherits; 0, null or "unlimited" is none; texts may have a unit, such as "2s" or "512M". */
export type Limit = Schemas["Limit"];
/** The result of a run. A timeout, a crash or an exit code other than 0 is data here, never an error. */
export type Outcome = Schemas["Outcome"];
/** Why Sandtimer ended a run. */
export type Verdict = Schemas["Verdict"];
/** How a run ended. */
export type Ending = Schemas["Ending"];
/** The encoding of output: text, or base64 for bytes that are not UTF-8. */
export type Encoding = Schemas["Encoding"];
/** The limits of a run, each with its source. */
export type Effective = Schemas["Effective"];
/** A run as the server knows it; `outcome` is there once it has ended. */
export type RunInfo = Schemas["Run"];
/** A run in a listing. */
export type RunSummary = Schemas["RunSummary"];
/** A listing of runs. */
export type RunList = Schemas["RunList"];
/** A piece of output, by its position in the stream. */
export type OutputPiece = Schemas["Output"];
/** The state of a context or session. */
export type ContextInfo = Schemas["Context"];
/** What the machine of the server can enforce. */
export type Host = Schemas["Host"];
/** The settings and default limits of a server. */
export type Config = Schemas["Config"];
/** The state of a server. */
export type Health = Schemas["Health"];
/** The new limit of a run that was extended. */
export type Extended = Schemas["Extended"];
/** How much of a write to stdin was taken. */
export type Written = Schemas["Written"];
/** The result of a wait for a line. */
export type WaitedForLine = Schemas["WaitedForLine"];
/** The result of a wait for a port. */
export type WaitedForPort = Schemas["WaitedForPort"];
/** Where a line is waited for: stdout and position 0 unless given; and how long, without end unless given. */
export type LineOptions = Readonly<Pick<Schemas["Wait"], "stream" | "cursor" | "wait_ms">>;
/** A job to be submitted: a command, code, steps or a loop, its limits, and when it is done. */
export type JobRequest = Schemas["JobRequest"];
/** A schedule to be stored: a job that recurs, and when it is due. */
export type JobScheduleRequest = Schemas["JobScheduleRequest"];
/** A schedule: a job that recurs. */
export type JobSchedule = Schemas["JobSchedule"];
/** A live worker of the store: its slots, version, queues and jobs. */
export type JobWorker = Schemas["JobWorkers"]["workers"][number];
/** The webhook of a job that is sent again. */
export type JobRedelivered = Schemas["JobRedelivered"];
/** Everything about a job. `ended_ms` and `result` are present once it has ended. */
export type JobInfo = Schemas["Job"];
/** A job in a listing. */
export type JobSummary = Schemas["JobSummary"];
/** A listing of jobs. */
export type JobList = Schemas["JobList"];
/** The result of a job, or of one of its deliveries. */
export type JobResult = Schemas["JobResult"];
/** The state of a job. */
export type JobState = Schemas["JobState"];
/** A part of the output of a job. */
export type JobLog = Schemas["JobLog"];
/** An output file of a job. */
export type JobFile = Schemas["JobFile"];
/** The output files of a job, and those that were not stored. */
export type JobFiles = Schemas["JobFiles"];
/** What a cancel did to a job. */
export type JobCancelled = Schemas["JobCancelled"];
/** The state of a job that was queued again. */
export type JobRetried = Schemas["JobRetried"];
/** The codes of a server's errors. */
export type ErrorCode = Schemas["Error"]["code"];

/** A workspace in a listing: a directory of the server that runs, contexts and sessions can work in, and that outlives them. */
export type WorkspaceInfo = Schemas["Workspace"];
/** The state of a workspace, with its size. */
export type WorkspaceDetails = Schemas["WorkspaceDetails"];
/** A file, directory or link. */
export type FileEntry = Schemas["FileEntry"];
/** The entry of a file that was written. */
export type FileWritten = Schemas["FileWritten"];
/** The entry of a file that was appended to. */
export type FileAppended = Schemas["FileAppended"];
/** What was unpacked from an archive. */
export type ArchiveUnpacked = Schemas["ArchiveUnpacked"];

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
export type ContextRequest = Schemas["ContextRequest"];
/** A session to be opened: its limits, and those of its executions. */
export type SessionRequest = Schemas["SessionRequest"];
/** Limits and stdin of one execution in a context or session, which is waited for. */
export type CellOptions = Omit<Schemas["CellRequest"], Wire | "stdin_open" | "code"> & Stdin;
/** The same in the background, where its stdin may stay open. */
export type BackgroundCellOptions = Omit<Schemas["CellRequest"], Wire | "code"> & Stdin;

/** Branches of a context: how many, and their limits, where those are not its own. */
export type BranchOptions = Schemas["BranchRequest"];

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
