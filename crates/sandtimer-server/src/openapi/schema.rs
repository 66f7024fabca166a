//! The shapes of bodies and answers.

use sandtimer::limits::{Key, Unit};
use sandtimer::model::LimitKind;
use serde_json::{Map, Value, json};

use crate::contexts::PER_RUN;
use crate::error::Code;
use crate::language::LANGUAGES;
use crate::runs::LIMITS;

pub(super) fn string(meaning: &str) -> Value {
    with(json!({"type": "string"}), meaning)
}

pub(super) fn number(meaning: &str) -> Value {
    with(json!({"type": "integer", "minimum": 0}), meaning)
}

pub(super) fn enumeration(enumeration: &[&str]) -> Value {
    json!({"type": "string", "enum": enumeration})
}

pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub(super) fn boolean(meaning: &str) -> Value {
    with(json!({"type": "boolean"}), meaning)
}

pub(super) fn with(mut schema: Value, meaning: &str) -> Value {
    if !meaning.is_empty() {
        schema["description"] = meaning.into();
    }
    schema
}

pub(super) fn nullable(mut schema: Value) -> Value {
    match schema.get("type").cloned() {
        Some(kind) if schema.get("enum").is_none() => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        _ => json!({"oneOf": [schema, {"type": "null"}]}),
    }
}

pub(super) fn list(of: Value) -> Value {
    json!({"type": "array", "items": of})
}

pub(super) fn anything(meaning: &str) -> Value {
    with(json!({}), meaning)
}

/// An object of these fields, all of which are there.
pub(super) fn answer(fields: Value) -> Value {
    let required: Vec<String> =
        fields.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    json!({"type": "object", "required": required, "properties": fields})
}

/// An answer that may have these fields as well.
pub(super) fn or_with(mut answer: Value, fields: Value) -> Value {
    for (name, schema) in fields.as_object().into_iter().flatten() {
        answer["properties"][name] = schema.clone();
    }
    answer
}

/// The sandbox of a run or a context.
pub(super) fn of_sandbox() -> Value {
    json!({"sandbox": string("The id of the sandbox that it is in; absent outside of one.")})
}

/// An object of at most these fields, none of which has to be there.
pub(super) fn body(fields: Value) -> Value {
    json!({"type": "object", "properties": fields, "additionalProperties": false})
}

/// A length of a terminal's side.
fn cells(meaning: &str) -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": 65_535, "description": meaning})
}

pub(super) fn requests() -> Value {
    let mut run = json!({
        "command": {"description": "A program with its arguments, or a line for the shell.",
            "oneOf": [{"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string", "minLength": 1}]},
        "code": string("A program in `language`, instead of a command."),
        "language": enumeration(&LANGUAGES),
        "stdin": string("What the command reads from its stdin; without it there is nothing to read."),
        "stdin_encoding": with(reference("Encoding"), "What `stdin` is in; `utf-8` unless given."),
        "stdin_open": boolean("Keeps stdin open for POST /v1/runs/{id}/stdin."),
        "terminal": reference("Terminal"),
        "network": boolean("Gives the host's network, including loopback; where there are tokens, only to those whose line has the word `network`."),
        "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables of the command."},
        "cwd": string("The directory that it starts in; relative to /workspace, where it starts unless given."),
        "workspace": string("The id of the workspace that it works in, as /workspace; an empty one of its own unless given."),
        "sandbox": string("The id of the sandbox that it runs in: its files are the sandbox's. Not together with `workspace`."),
        "errors": encoding_error_mode(),
        "task_type": with(reference("TaskType"), "What kind of work it is: its duration is remembered as that, too."),
        "warn_ms": number("How long before the wall-clock limit, and before the cpu limit, a `warning` event is sent."),
        "warn_signal": with(json!({"oneOf": [string("Such as `SIGUSR1`."), number("1 to 31.")]}), "A signal that is then sent to those of its processes that handle it. With `progress_channel` it also reads a line such as `{\"limit\": \"wall\", \"left_ms\": 30000}` from the descriptor that SANDTIMER_NOTICE_FD names."),
        "on_output_limit": with(enumeration(&["drop", "end"]), "What happens past the output limit; `drop` unless given."),
        "stall_by": with(enumeration(&["output", "progress"]), "What resets the stall limit: output or CPU use, unless given; or only progress, as its output shows it."),
        "progress_channel": boolean("Gives the command descriptor 3, named by SANDTIMER_PROGRESS_FD, for lines such as `{\"done\": 8, \"total\": 15, \"unit\": \"epoch\"}`, which have precedence over its output."),
        "wait_ms": number("How long the answer waits for the end; without it until the end, however long, but with a terminal not at all; 0 is not at all."),
        "attached": boolean("The client must keep waiting: the run is cancelled once no client has waited for it (GET /v1/runs/{id} with `wait_ms`, POST /v1/runs/{id}/wait) for 10 s. Not together with `detach`."),
        "detach": boolean("The run continues if this client disconnects while it waits. Without this it is cancelled."),
    });
    limit_fields(&mut run, &LIMITS);
    json!({
        "RunRequest": body(run),
        "Terminal": with(body(json!({
            "columns": cells("80 unless given."),
            "rows": cells("24 unless given."),
        })), "Gives the command a terminal for stdin, stdout and stderr, all of which is stdout then; see /v1/runs/{id}/terminal."),
        "Kill": body(json!({"reason": string("For the verdict."), "wait_ms": number("How long to wait for its end; 5000 unless given.")})),
        "Extend": body(json!({"by_ms": number("How much later, in milliseconds; positive.")})),
        "Empty": body(json!({})),
        "Wait": body(json!({
            "port": json!({"type": "integer", "minimum": 1, "maximum": 65_535}),
            "pattern": string("Instead of a port: a regular expression (of Rust's `regex`, at most 1 KiB) that a line is to match. A line of more than 64 KiB is taken for several, and one that has no end yet counts once it has not grown for 100 ms."),
            "stream": with(enumeration(&["stdout", "stderr"]), "Where the line is to come; stdout unless given."),
            "cursor": number("The byte's position at which to begin to look; 0 unless given."),
            "wait_ms": number("How long to wait for what is not there yet; without it until the run has ended."),
        })),
        "Signal": body(json!({"signal": {"oneOf": [string("Such as `SIGUSR1`."), number("1 to 64.")]}})),
        "Input": body(json!({
            "data": string("What the command is to read."),
            "encoding": with(reference("Encoding"), "What `data` is in; `utf-8` unless given."),
            "eof": boolean("Closes stdin afterwards."),
            "wait_ms": number("How long to wait for a command that does not read; 10000 unless given."),
        })),
    })
}

/// What is answered when something of a run was waited for.
fn waited(mut fields: Value) -> Value {
    fields["run_id"] = string("");
    fields["status"] = enumeration(&["queued", "running", "ended"]);
    fields["ending"] = nullable(reference("Ending"));
    fields["exit_code"] = nullable(json!({"type": "integer"}));
    fields["sentence"] = nullable(string("That of its verdict, where a limit or a cancel ended it."));
    answer(fields)
}

pub(super) fn runs() -> Value {
    let status = || enumeration(&["queued", "running", "ended"]);
    let command = || with(list(string("")), "The beginning of the command.");
    let since = |meaning: &str| number(&format!("{meaning}, in milliseconds since 1970."));
    json!({
        "Run": or_with(answer(json!({
            "run_id": string(""),
            "status": status(),
            "command": command(),
            "created_at_ms": since("When it was started"),
            "ended_at_ms": nullable(since("When it ended")),
            "effective": reference("Effective"),
            "context_id": nullable(string("The context or session that executes it.")),
            "progress": nullable(reference("Progress")),
            "outcome": nullable(reference("Outcome")),
        })), of_sandbox()),
        "RunSummary": or_with(answer(json!({
            "run_id": string(""),
            "status": status(),
            "paused": boolean(""),
            "waiting_for": nullable(waiting_for("What its command waits for, or `cpu` where it computes; null where that cannot be known.")),
            "command": command(),
            "wall_ms": nullable(number("The wall-clock limit that it was started with; null is unlimited.")),
            "wall_left_ms": nullable(number("Milliseconds until its wall ends, with what has moved it; null without one, in a pause, and at the end.")),
            "created_at_ms": since("When it was started"),
            "elapsed_ms": number("Milliseconds since then, until now or until it ended."),
            "queued_ms": number("Milliseconds between submission and the start of its isolation or its cell; so far, if it is queued."),
            "spawn_ms": nullable(number("Milliseconds to build the isolation; null until the command started.")),
            "context_id": nullable(string("The context or session that executes it.")),
            "ended_at_ms": nullable(since("When it ended")),
            "ending": nullable(reference("Ending")),
            "ok": nullable(boolean("Exited with 0.")),
            "exit_code": nullable(json!({"type": "integer"})),
            "progress": nullable(reference("Progress")),
            "sentence": nullable(string("That of its verdict, where a limit or a cancel ended it.")),
        })), of_sandbox()),
        "RunList": answer(json!({
            "runs": list(reference("RunSummary")),
            "total": number("How many there are."),
            "next": nullable(string("The `cursor` of the next part; null at the end.")),
        })),
        "Processes": processes(),
        "Output": answer(json!({
            "run_id": string(""),
            "status": status(),
            "stream": enumeration(&["stdout", "stderr"]),
            "cursor": number("The position of the first byte of `data`."),
            "next_cursor": number("The position to continue at."),
            "data": string("In `encoding`."),
            "encoding": reference("Encoding"),
            "dropped_before": number("Bytes before `cursor` that are gone."),
            "ended": boolean("The run has ended, and nothing follows `next_cursor` except the output of a job that it left running in its session, while the session lives."),
        })),
        "Extended": answer(json!({
            "run_id": string(""),
            "wall_left_ms": nullable(number("Milliseconds until the wall-clock limit.")),
            "source": nullable(reference("Source")),
        })),
        "Paused": answer(json!({"run_id": string(""), "paused": boolean("")})),
        "Waited": json!({"oneOf": [reference("WaitedForPort"), reference("WaitedForLine")]}),
        "WaitedForPort": waited(json!({
            "port": number(""),
            "listening": boolean("A process of the run listens on it; otherwise the run has ended, or the time has passed."),
        })),
        "WaitedForLine": waited(json!({
            "pattern": string(""),
            "stream": enumeration(&["stdout", "stderr"]),
            "matched": boolean("Such a line was written; otherwise the run has ended, or the time has passed."),
            "line": nullable(string("The first one, without its newline.")),
            "cursor": number("Where that line begins, or what was not looked at yet does."),
            "next_cursor": number("The position to continue at: after that line, or at the first byte that was not searched yet."),
            "dropped_before": number("Bytes on the way that were past the output limit, and could not be looked at."),
        })),
        "Signalled": answer(json!({"run_id": string(""), "signal": number("")})),
        "Written": answer(json!({
            "run_id": string(""),
            "written": number("Bytes of `data` that were taken."),
            "closed": boolean("Stdin is closed now; never before all of `data` was taken."),
        })),
    })
}

fn waiting_for(meaning: &str) -> Value {
    with(enumeration(&["stdin", "sleep", "network", "child", "cpu", "io", "stopped"]), meaning)
}

/// Stacks, which are there only where they could be read.
fn python() -> Value {
    let meaning = "Where it is CPython (3.9 to 3.13) and could be read from outside: the stack of each of its threads, the oldest \
                   thread first; the run's word. Of a verdict: of the first process that is one, shortly before.";
    with(list(reference("PythonThread")), meaning)
}

fn python_thread() -> Value {
    answer(json!({
        "thread": nullable(number("Its number inside the sandbox; from Python 3.11 on.")),
        "frames": list(answer(json!({"function": string(""), "file": string(""), "line": nullable(number(""))}))),
        "truncated": boolean("There is more of it, which was not or could not be read."),
    }))
}

fn processes() -> Value {
    let mut process = answer(json!({
        "pid": number("Its number inside the sandbox."),
        "depth": number("How far it is from the command, which is 0."),
        "name": string("What it calls itself."),
        "threads": number(""),
        "waiting_for": nullable(waiting_for("")),
        "wait_channel": nullable(string("The kernel's function in which its first thread waits, such as `do_wait`.")),
        "cpu_ms": number("Its own processor time."),
        "io_bytes": nullable(number("Bytes that it, and children that it has reaped, have read and written; null where the kernel does not report it.")),
    }));
    process["properties"]["python"] = python();
    answer(json!({
        "run_id": string(""),
        "sentence": string("What it is doing, for a person or a model."),
        "waiting_for": nullable(waiting_for("What its command waits for, or `cpu` where it computes.")),
        "quiet_ms": number("Milliseconds since its latest output, or since its start."),
        "cpu_ms": number("Processor time of all of it so far."),
        "cpu_age_ms": nullable(number("For how many milliseconds at least that has not moved; null where it was not looked at before.")),
        "io_bytes": nullable(number("Bytes that its processes have read and written, from and to files, pipes and sockets.")),
        "io_age_ms": nullable(number("For how many milliseconds at least these have not moved.")),
        "progress": nullable(reference("Progress")),
        "processes": list(process),
        "truncated": boolean("There are more than the first 64 processes."),
    }))
}

fn progress() -> Value {
    let mut progress = answer(json!({
        "done": {"type": "number"},
        "total": nullable(json!({"type": "number"})),
        "eta_ms": nullable(number("Milliseconds until it is done, if it continues at the same rate.")),
    }));
    progress["properties"]["p_finish_before_deadline"] = json!({
        "type": "number", "minimum": 0, "maximum": 1,
        "description": "The probability that it is done before its wall-clock limit ends it; if it is running, has such a limit, and eta_ms is known.",
    });
    with(progress, "How far a run is, as its captured output or its reports say: the run's word.")
}

/// `errors`.
pub(super) fn encoding_error_mode() -> Value {
    let meaning = "What becomes of output that is not UTF-8: with `strict`, unless given, it is base64; with `replace` each such sequence of bytes becomes U+FFFD.";
    with(enumeration(&["strict", "replace"]), meaning)
}

pub(super) fn outcome() -> Value {
    let optional_string = |meaning: &str| nullable(string(meaning));
    let amount = || number("");
    json!({
        "Ending": enumeration(&["exited", "signaled", "returned", "raised", "no_result", "timeout", "stalled", "out_of_memory",
            "output_limit", "process_limit", "disk_limit", "budget", "cancelled", "infra_error"]),
        "Encoding": with(enumeration(&["utf-8", "base64"]), "base64 where it is not UTF-8."),
        "Source": enumeration(&["call", "session", "env", "config", "builtin", "ceiling", "ancestor"]),
        "Layer": enumeration(&["tenant", "job", "sandbox", "session", "loop", "turn", "task", "call", "attempt", "run", "infrastructure"]),
        "Outcome": answer(json!({
            "run_id": string(""),
            "ending": reference("Ending"),
            "ok": boolean("Returned, or exited 0."),
            "exit_code": nullable(json!({"type": "integer"})),
            "signal": optional_string("The signal that ended the command, such as `SIGSEGV`."),
            "stdout": string(""),
            "stderr": string(""),
            "stdout_truncated": boolean(""),
            "stderr_truncated": boolean(""),
            "encoding": with(reference("Encoding"), "base64 where at least one of both streams is."),
            "stdout_encoding": reference("Encoding"),
            "stderr_encoding": reference("Encoding"),
            "value": anything("What a call returned."),
            "error": anything("What a call raised, or why Sandtimer could not continue."),
            "results": list(anything("")),
            "execution_count": nullable(amount()),
            "verdict": nullable(reference("Verdict")),
            "tree": reference("Tree"),
            "state": enumeration(&["kept", "rolled_back", "reset", "lost", "none"]),
            "usage": reference("Usage"),
            "isolation": reference("Isolation"),
            "path": enumeration(&["parked", "cold", "exec", "fork", "spawn"]),
            "reported_by": enumeration(&["kernel", "interpreter"]),
            "notices": list(reference("Notice")),
            "remarks": list(reference("Remark")),
        })),
        "Remark": with(answer(json!({
            "kind": enumeration(&["killed_leftovers", "no_network", "network_denied", "shortened_grace", "output_not_stored", "shortened"]),
            "message": string("What happened, and what to do for another result."),
        })), "Something that the owner of a run may not expect."),
        "Notice": answer(json!({
            "kind": enumeration(&["wall", "cpu"]),
            "at_ms": number("Milliseconds since it began."),
            "left_ms": number("Milliseconds that were left until the limit."),
            "signal": optional_string("The signal that was chosen for it."),
            "processes": number("How many processes were sent it: those that handle it."),
        })),
        "PythonThread": python_thread(),
        "Progress": progress(),
        "Verdict": verdict(),
        "Tree": answer(json!({
            "killed": amount(),
            "survivors": nullable(number("0 once proven.")),
            "proof": enumeration(&["cgroup empty", "pid namespace gone", "subreaper sweep", "pending", "unkillable"]),
            "dead_after_ms": nullable(amount()),
        })),
        "Usage": answer(json!({
            "wall_ms": amount(),
            "user_ms": amount(),
            "system_ms": amount(),
            "memory_peak_bytes": amount(),
            "processes_peak": amount(),
            "run_queue_ms": nullable(amount()),
            "queued_ms": number("Milliseconds between submission and the start of its isolation or its cell."),
            "spawn_ms": number("Milliseconds to build the isolation, until the command started."),
        })),
        "Isolation": answer(json!({
            "tier": enumeration(&["T0", "T1", "T2", "T3"]),
            "kill": enumeration(&["K0", "K1", "K2", "K3"]),
            "deadline_layers": list(string("")),
            "degraded": list(answer(json!({"layer": string(""), "reason": string("")}))),
        })),
    })
}

fn verdict() -> Value {
    let amount = || number("");
    let kinds = [
        "wall",
        "cpu",
        "stall",
        "idle",
        "turns",
        "failures",
        "memory",
        "processes",
        "output",
        "disk",
        "open_files",
        "result",
    ];
    let mut verdict = answer(json!({
        "kind": nullable(enumeration(&kinds)),
        "layer": reference("Layer"),
        "scope": string("The scope's path in the tree."),
        "limit_ms": nullable(amount()),
        "source": reference("Source"),
        "elapsed_ms": amount(),
        "late_ms": {"type": "number"},
        "enforced_by": enumeration(&["enforcer", "init", "watchdog", "kernel"]),
        "signals": list(answer(json!({"signal": string(""), "at_ms": amount()}))),
        "last_output_age_ms": nullable(amount()),
        "progress": nullable(reference("Progress")),
        "waiting_for": nullable(waiting_for("What its command waited for shortly before.")),
        "spent": answer(json!({"queued_ms": amount(), "spawn_ms": amount(), "attempts": list(anything("")), "paused_ms": amount()})),
        "sentence": string("One or two sentences for a person or a model."),
    }));
    verdict["properties"]["origin"] =
        string("The variable, flag or line of a file that set the limit, where that is known.");
    verdict["properties"]["limit"] =
        number("The limit in bytes or pieces, for kinds that are not measured in time.");
    verdict["properties"]["python"] = python();
    verdict["properties"]["child"] = with(
        answer(json!({"name": string("What it calls itself."), "waiting_for": nullable(waiting_for(""))})),
        "Where its command waited for a child: the innermost process of its tree, and what that did.",
    );
    verdict["properties"]["wait_channel"] =
        string("The kernel's function in which that process waited, or the command.");
    verdict["properties"]["last_cpu_age_ms"] = number(
        "For how many milliseconds at least its processor time had not moved, where that was looked at.",
    );
    verdict["properties"]["last_io_age_ms"] =
        number("The same of what it has read and written, files and pipes alike.");
    verdict["properties"]["extended_ms"] = number(
        "By how much the run was extended, where it was; limit_ms is the limit as it was when it fired.",
    );
    verdict
}

/// Adds fields for these limits, and for the other names of the wall limit.
pub(super) fn limit_fields(fields: &mut Value, keys: &[Key]) {
    for key in keys {
        fields[key.wire()] = reference("Limit");
    }
    if keys.contains(&LimitKind::Wall.into()) {
        wall_names(fields);
    }
}

/// Adds the other names of the wall limit.
pub(super) fn wall_names(fields: &mut Value) {
    fields["timeout_ms"] = with(reference("Limit"), "The same as `wall_ms`; give one of them.");
    fields["timeout"] = nullable(string("The same, with its unit, such as `30s`."));
}

pub(super) fn limits() -> Value {
    let entry = json!({
        "type": ["object", "null"],
        "required": ["limit", "source"],
        "properties": {
            "limit": number("In the unit of the key."),
            "source": reference("Source"),
            "origin": string("The variable, flag or line of a file that sets it, where that is known."),
            "layer": reference("Layer"),
            "scope": string("The outer scope that sets it."),
        },
    });
    let effective: Map<String, Value> =
        Key::ALL.iter().map(|key| (key.wire().to_owned(), entry.clone())).collect();
    let named = LIMITS.iter().chain(&PER_RUN[5..]);
    let units: Vec<String> = named.map(|key| format!("{}: {}", key.wire(), unit(*key))).collect();
    json!({
        "Limit": {
            "description": format!("0, null or \"unlimited\" is explicitly unlimited. A string may have a unit, such as \"2s\" or \"512M\". {}", units.join("; ")),
            "oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}, {"type": "null"}],
        },
        "Effective": with(answer(Value::Object(effective)), "Each limit that applies, and who set it; null is unlimited."),
    })
}

fn unit(key: Key) -> &'static str {
    match key.unit() {
        Unit::Milliseconds | Unit::Seconds => "milliseconds",
        Unit::Bytes => "bytes",
        Unit::Count => "a count",
    }
}

pub(super) fn server() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.name()).collect();
    let setting = answer(json!({"value": anything(""), "source": reference("Source"), "origin": string("")}));
    let limit =
        answer(json!({"limit": nullable(number("")), "source": reference("Source"), "origin": string("")}));
    let policy = json!({
        "type": "object",
        "required": ["source", "origin"],
        "properties": {
            "limit": nullable(number("In milliseconds or bytes, by the suffix of its name.")),
            "value": anything(""),
            "source": reference("Source"),
            "origin": string(""),
        },
    });
    json!({
        "Error": answer(json!({
            "code": enumeration(&codes),
            "message": string("What was wrong, and with which value."),
            "hint": string("What would work."),
            "retryable": boolean("The same request may succeed later."),
            "details": {"type": "object"},
        })),
        "Host": answer(json!({
            "tier": nullable(enumeration(&["T0", "T1", "T2", "T3"])),
            "kill": nullable(enumeration(&["K0", "K1", "K2", "K3"])),
            "deadline_layers": list(string("")),
            "layers": list(answer(json!({
                "layer": string(""),
                "status": enumeration(&["ok", "degraded", "missing"]),
                "evidence": string(""),
                "consequence": string(""),
                "remedy": string(""),
            }))),
            "measured": {"type": "object"},
        })),
        "Config": answer(json!({
            "limits": with(json!({"type": "object", "additionalProperties": limit}), "Of runs."),
            "policy": with(json!({"type": "object", "additionalProperties": policy}), "By the names shared with other programs."),
            "server": {"type": "object", "additionalProperties": setting},
        })),
        "Health": answer(json!({"status": enumeration(&["ok", "closing"])})),
        "Document": {"type": "object"},
    })
}
