/** The errors of this client: one class, and two subclasses for `instanceof`. The ending of a run is never an error. */

/** A request that the server rejected, or did not answer. `code` is one of the server (spec/errors.md) or of this client. */
export class SandtimerError extends Error {
  /** The kind of error, for programs. */
  readonly code: string;
  /** What would work. */
  readonly hint: string;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** Facts for programs, such as the `key` of a rejected field. */
  readonly details: Readonly<Record<string, unknown>>;
  /** The HTTP status of the answer, if there was one. */
  readonly status: number | undefined;

  constructor(facts: {
    code: string;
    message: string;
    hint?: string;
    retryable?: boolean;
    details?: Readonly<Record<string, unknown>>;
    status?: number;
    cause?: unknown;
  }) {
    super(facts.message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.code = facts.code;
    this.hint = facts.hint ?? "";
    this.retryable = facts.retryable ?? false;
    this.details = facts.details ?? {};
    this.status = facts.status;
  }
}

/** The server did not answer: no server listens at the address, or the connection broke (`unreachable`). */
export class UnreachableError extends SandtimerError {}

/** The server answered, and does not know the token (`unauthorized`). */
export class UnauthorizedError extends SandtimerError {}

/** The error that an answer stands for. */
export function refusal(status: number, text: string): SandtimerError {
  const facts = parsed(text);
  if (facts === undefined) {
    const shown = text.slice(0, 200);
    const message = `the answer (HTTP ${status}) is not one of a Sandtimer server: ${shown}`;
    const hint = "check the address; a proxy in between may have answered";
    // Proxies say so when they do not get through.
    return [502, 503, 504].includes(status)
      ? new UnreachableError({ code: "unreachable", message, hint, status, retryable: true })
      : new SandtimerError({ code: "bad_answer", message, hint, status });
  }
  return status === 401 ? new UnauthorizedError({ ...facts, status }) : new SandtimerError({ ...facts, status });
}

function parsed(text: string) {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const { code, message, hint, retryable, details } = value as Record<string, unknown>;
  if (typeof code !== "string" || typeof message !== "string") return undefined;
  return {
    code,
    message,
    hint: typeof hint === "string" ? hint : "",
    retryable: retryable === true,
    details: typeof details === "object" && details !== null ? (details as Record<string, unknown>) : {},
  };
}
