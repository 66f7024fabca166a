/**
 * The shapes of what is sent and answered, under short names. All but the events come from the server's own description,
 * `openapi.ts`, which is generated: names and units here are those of every other wire format of Sandtimer.
 */

import type { components } from "./openapi.js";

type Schemas = components["schemas"];

/** A limit: absent inherits; 0, null or "unlimited" is none; texts may have a unit, such as "2s" or "512M". */
export type Limit = Schemas["Limit"];
/** What became of a run. A timeout, a crash or an exit code other than 0 is data here, never an error. */
export type Outcome = Schemas["Outcome"];
export type Verdict = Schemas["Verdict"];
export type Ending = Schemas["Ending"];
export type Encoding = Schemas["Encoding"];
export type Effective = Schemas["Effective"];
/** A run as the server knows it; `outcome` is there once it has ended. */
export type RunInfo = Schemas["Run"];
export type RunSummary = Schemas["RunSummary"];
export type RunList = Schemas["RunList"];
/** A piece of output, by its position in the stream. */
export type OutputPiece = Schemas["Output"];
export type ContextInfo = Schemas["Context"];
export type Host = Schemas["Host"];
export type Config = Schemas["Config"];
export type Health = Schemas["Health"];
export type Extended = Schemas["Extended"];
export type Written = Schemas["Written"];
/** What became of waiting for a line, or for a port. */
export type WaitedForLine = Schemas["WaitedForLine"];
export type WaitedForPort = Schemas["WaitedForPort"];
/** Where a line is waited for: stdout and position 0 unless given; and how long, without end unless given. */
export type LineOptions = Readonly<Pick<Schemas["Wait"], "stream" | "cursor" | "wait_ms">>;
/** A job to be submitted: a command, code, steps or a loop, its limits, and when it is done. */
export type JobRequest = Schemas["JobRequest"];
/** A schedule to be stored: a job that recurs, and when it is due. */
export type JobScheduleRequest = Schemas["JobScheduleRequest"];
export type JobSchedule = Schemas["JobSchedule"];
/** Everything about a job; `ended_ms` and `result` are there once it is over. */
export type JobInfo = Schemas["Job"];
export type JobSummary = Schemas["JobSummary"];
export type JobList = Schemas["JobList"];
export type JobResult = Schemas["JobResult"];
export type JobState = Schemas["JobState"];
export type JobLog = Schemas["JobLog"];
export type JobFile = Schemas["JobFile"];
export type JobFiles = Schemas["JobFiles"];
export type JobCancelled = Schemas["JobCancelled"];
export type JobRetried = Schemas["JobRetried"];
export type ErrorCode = Schemas["Error"]["code"];

/** A directory of the server's that runs, contexts and sessions can work in, and that outlives them. */
export type WorkspaceInfo = Schemas["Workspace"];
export type WorkspaceDetails = Schemas["WorkspaceDetails"];
export type FileEntry = Schemas["FileEntry"];
export type FileWritten = Schemas["FileWritten"];
export type FileAppended = Schemas["FileAppended"];
export type ArchiveUnpacked = Schemas["ArchiveUnpacked"];

/** What is waited for, and whether it is the caller's own, is said by which method is called. */
type Waiting = "wait_ms" | "turn_ms" | "attached" | "detach";

/** What is read from stdin; text is UTF-8. */
export type Input = string | Uint8Array;
type Stdin = { readonly stdin?: Input };
type Wire = Waiting | keyof Stdin | "stdin_encoding";

/** A command, or code in a language, that is run to its end. */
export type ForegroundRequest = Omit<Schemas["RunRequest"], Wire | "stdin_open"> & Stdin;
/** The same in the background, where its stdin may stay open. */
export type RunRequest = Omit<Schemas["RunRequest"], Wire> & Stdin;
export type ContextRequest = Schemas["ContextRequest"];
export type SessionRequest = Schemas["SessionRequest"];
/** Limits and stdin of one execution in a context or session, which is waited for. */
export type CellOptions = Omit<Schemas["CellRequest"], Wire | "stdin_open" | "code"> & Stdin;
/** The same in the background, where its stdin may stay open. */
export type BackgroundCellOptions = Omit<Schemas["CellRequest"], Wire | "code"> & Stdin;

/** Branches of a context: how many, and their limits, where those are not its own. */
export type BranchOptions = Schemas["BranchRequest"];

/** An execution in a context: the outcome, and what happened to the context since the one before. */
export type CellOutcome = Outcome & { readonly notes: readonly string[] };

export type Stream = "stdout" | "stderr";

interface At<Name extends string, Data> {
  readonly event: Name;
  /** The reader's place behind this event; `events({ after: id })` goes on there. */
  readonly id: string;
  readonly data: Data;
}

interface Said {
  readonly cursor: number;
  readonly next_cursor: number;
  readonly data: string;
  readonly encoding: Encoding;
}

/** What a run says of itself, in the order in which it happens. */
export type RunEvent =
  | At<"started", { readonly run_id: string; readonly created_at_ms: number; readonly effective: Effective }>
  | At<"stdout", Said>
  | At<"stderr", Said>
  | At<"warning", { readonly kind: "wall" | "cpu" | "stall"; readonly message: string; readonly left_ms?: number; readonly quiet_ms?: number }>
  | At<"lagged", { readonly stream: Stream; readonly dropped: number; readonly next_cursor: number }>
  | At<"ended", RunEnd>;

/** What a job says of itself. */
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

/** A piece of what a run wrote. */
export interface Chunk {
  readonly stream: Stream;
  /** Characters that are cut between two pieces come whole with the second; what is no UTF-8 becomes U+FFFD. */
  readonly text: string;
  readonly bytes: Uint8Array;
  /** Position of the first byte in its stream. */
  readonly cursor: number;
  /** Bytes before it that the server no longer had: past the run's output limit. */
  readonly dropped: number;
}

export interface Waitable {
  /** Of a foreground run: cancels it. Of everything else: ends the waiting. What is thrown is the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}
