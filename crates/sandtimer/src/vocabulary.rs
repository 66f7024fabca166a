//! The names that other tools use for what has another name here, and the suggestion for a caller
//! that gives one of them.
//!
//! One table for all front doors, so that they suggest the same. A suggestion is a name that the
//! place knows, or there is none.

/// Other tools' names, each as it is compared (see [`normal`]), with ours: of these the first that
/// a place has is meant.
const NAMES: &[(&[&str], &[&str])] = &[
    (&["cmd", "shell_command", "commandline", "command_line", "exec", "bash_command"], &["command"]),
    (
        &["script", "source", "source_code", "snippet", "program", "python_code", "cell", "input_code"],
        &["code", "command"],
    ),
    (
        &[
            "timeout",
            "wall",
            "timeout_s",
            "timeout_sec",
            "timeout_secs",
            "timeout_seconds",
            "time_limit",
            "max_time",
            "max_runtime",
            "run_timeout",
            "execution_timeout",
            "deadline",
            "ttl",
            "kill_after_ms",
            "t",
        ],
        &["timeout_ms", "wall_ms", "wall"],
    ),
    (
        &[
            "workdir",
            "work_dir",
            "working_dir",
            "working_directory",
            "dir",
            "directory",
            "chdir",
            "current_dir",
            "pwd",
            "w",
        ],
        &["cwd"],
    ),
    (&["environment", "envs", "env_vars", "env_var", "environ", "variables", "vars", "e"], &["env"]),
    (&["input", "stdin_data", "stdin_text", "text", "keys", "chars"], &["data", "stdin"]),
    (
        &["memory", "mem", "mem_limit", "memory_limit", "memory_mb", "max_memory", "ram", "m"],
        &["memory_bytes", "memory"],
    ),
    (&["cpu", "cpu_time", "cpu_limit", "cpu_time_limit", "max_cpu_time"], &["cpu_ms", "cpu"]),
    (
        &["run_in_background", "is_background", "detached", "async", "nohup", "daemon", "d"],
        &["background", "detach"],
    ),
    (
        &["id", "run", "bash_id", "shell_id", "process_id", "pid", "task_id", "job_id", "runid", "exec_id"],
        &["run_id", "bash_id", "shell_id"],
    ),
    (&["ids", "runs", "run_id", "tasks"], &["run_ids"]),
    (&["lang", "runtime", "interpreter", "kernel", "kernel_name"], &["language"]),
    (&["session", "session_id", "context", "kernel_id", "notebook_id", "repl_id"], &["context_id"]),
    (&["lines", "last", "last_lines", "n", "num_lines"], &["tail"]),
    (&["offset", "position", "from", "since", "start"], &["cursor"]),
    (&["grep", "regex", "regexp", "pattern", "match", "query"], &["filter", "pattern"]),
    (
        &["max_output", "max_chars", "max_length", "max_output_bytes", "limit", "output_limit"],
        &["max_bytes", "output_bytes", "output"],
    ),
    (&["wait", "wait_for", "wait_seconds", "wait_s", "yield_time_ms", "block_ms"], &["wait_ms"]),
    (
        &["stall", "idle_timeout", "no_output_timeout", "inactivity_timeout", "silence_ms"],
        &["stall_ms", "stall"],
    ),
    (&["grace", "grace_period", "grace_seconds", "kill_after", "k"], &["grace_ms", "grace"]),
    (&["sig", "kill_signal"], &["signal"]),
    (&["net", "internet", "allow_network", "enable_network"], &["network"]),
    (&["volume", "volumes", "mount", "bind", "v"], &["workspace"]),
    (&["pids", "nproc", "max_processes", "pids_limit", "process_limit"], &["processes"]),
    (&["disk", "size", "file_size", "disk_limit", "max_disk", "fsize"], &["disk_bytes", "disk"]),
    (&["nofile", "fds", "max_open_files"], &["open_files"]),
    (&["title", "purpose", "explanation", "summary"], &["description"]),
    (&["name", "task", "task_name"], &["label"]),
    (&["tty", "pty", "interactive", "it"], &["terminal"]),
    (
        &[
            "retries",
            "retry",
            "max_retries",
            "max_attempts",
            "max_tries",
            "tries",
            "retry_count",
            "retry_limit",
        ],
        &["attempts"],
    ),
    (
        &[
            "non_retryable_error_types",
            "dont_autoretry_for",
            "no_retry",
            "no_retry_on",
            "throws",
            "discard_on",
            "abort_on",
        ],
        &["not_retried"],
    ),
    (&["backoff", "retry_delay", "retry_backoff", "retry_delay_ms", "default_retry_delay"], &["backoff_ms"]),
    (&["eta", "defer_until", "run_at", "scheduled_at", "schedule_at", "not_before"], &["not_before_ms"]),
    (&["delay", "delay_seconds", "delay_s", "countdown", "defer_by", "start_in"], &["delay_ms"]),
    (&["expires_at", "expire_at"], &["deadline_ms"]),
    (&["result_ttl", "result_expires", "keep_result", "retention", "failure_ttl"], &["retention_ms"]),
    (&["max_deliveries", "max_deliver", "max_receive_count"], &["deliveries"]),
    (
        &["unique_key", "dedupe_key", "deduplication_id", "dedup_key", "unique", "msg_id"],
        &["idempotency_key"],
    ),
    (&["callback", "callback_url", "hook", "webhook_url", "on_complete", "notify_url"], &["webhook"]),
    (&["queue_name", "task_queue", "topic"], &["queue"]),
    (
        &["depends_on", "depends", "dependencies", "after", "parents", "needs", "wait_for"],
        &["needs", "after"],
    ),
    (&["rate_limit", "ratelimit", "throttle", "limiter", "rate_limiter", "max_rate"], &["rate"]),
    (&["timezone", "tz", "zone", "time_zone_name"], &["time_zone"]),
    (&["crontab", "schedule", "cron_expression"], &["cron"]),
    (&["every", "interval", "interval_ms", "repeat"], &["every_ms"]),
    (&["fan_out", "foreach", "for_each", "with_items", "matrix"], &["map"]),
    (&["exit_codes", "ok_codes", "success_exit_codes", "allowed_exit_codes"], &["expected"]),
    (&["artifacts", "output_files"], &["outputs"]),
    (&["input_files", "files"], &["inputs"]),
];

/// Names of other tools for what is set elsewhere here, and where.
const ELSEWHERE: &[(&[&str], &str)] = &[(
    &[
        "cron",
        "crontab",
        "schedule",
        "every",
        "every_ms",
        "repeat",
        "recurring",
        "time_zone",
        "timezone",
        "tz",
    ],
    "a job that recurs is in a schedule: `sandtimer jobs schedule`, or `/v1/jobs/schedules`",
)];

/// Where what a field of another tool's job means is asked for, if that is not in a field.
pub fn elsewhere(name: &str) -> Option<&'static str> {
    let given = normal(name);
    ELSEWHERE.iter().find(|(names, _)| names.contains(&given.as_str())).map(|(_, advice)| *advice)
}

/// Other names of languages, with ours.
const LANGUAGES: &[(&[&str], &str)] = &[
    (&["py", "python3", "py3", "ipython", "cpython"], "python"),
    (&["js", "node", "nodejs", "node_js", "ecmascript"], "javascript"),
    (&["ts", "tsx", "deno"], "typescript"),
    (&["sh", "shell", "zsh", "shellscript", "console"], "bash"),
];

/// A name as it is compared: `--time-limit` and `timeLimit` are `time_limit`.
fn normal(name: &str) -> String {
    let mut normal = String::with_capacity(name.len() + 4);
    for character in name.trim_start_matches('-').chars() {
        match character {
            '-' | ' ' | '.' => normal.push('_'),
            _ if character.is_ascii_uppercase() => {
                if normal.ends_with(|before: char| before.is_ascii_lowercase() || before.is_ascii_digit()) {
                    normal.push('_');
                }
                normal.push(character.to_ascii_lowercase());
            }
            _ => normal.push(character),
        }
    }
    normal
}

/// The name among `known` that is meant by another tool's, if there is one.
pub fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    // As long as the longest name above, and some.
    if name.len() > 40 {
        return None;
    }
    let given = normal(name);
    let find = |ours: &str| known.clone().find(|known| normal(known) == ours);
    let spelled = find(&given);
    let candidates = NAMES.iter().filter(|(others, _)| others.contains(&given.as_str()));
    spelled.or_else(|| candidates.flat_map(|(_, ours)| ours.iter()).find_map(|ours| find(ours)))
}

/// The name among `known` that differs from this one by a typing error: in at most a quarter of its
/// characters, at least one.
pub fn misspelled<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let shortened: String = name.chars().take(64).collect();
    known
        .map(|known| (strsim::osa_distance(known, &shortened), known))
        .filter(|(distance, known)| *distance <= (known.len() / 4).max(1))
        .min()
        .map(|(_, known)| known)
}

/// Returns the name among `known` that an unknown name means, and the text that follows `unknown
/// field`.
pub fn meant_or_misspelled<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Option<(&'a str, String)> {
    let synonym = meant(name, known.clone()).map(|meant| (meant, format!(", which is `{meant}` here")));
    synonym.or_else(|| {
        misspelled(name, known).map(|meant| (meant, format!("; the nearest known one is `{meant}`")))
    })
}

/// Our name of a language, where this is another of it; else as it is given.
pub fn language(name: &str) -> &str {
    let given = name.trim().to_ascii_lowercase();
    let ours = LANGUAGES.iter().find(|(others, ours)| *ours == given || others.contains(&given.as_str()));
    ours.map_or(name, |(_, ours)| ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_tools_map_to_known_fields() {
        let bash = ["command", "cwd", "env", "stdin", "background", "timeout_ms", "wall_ms", "wait_ms"];
        let flags = ["wall", "without", "cwd", "memory", "workspace"];
        for (name, known, ours) in [
            ("cmd", &bash[..], Some("command")),
            ("timeout", &bash, Some("timeout_ms")),
            ("workingDirectory", &bash, Some("cwd")),
            ("run_in_background", &bash, Some("background")),
            ("waitMs", &bash, Some("wait_ms")),
            ("--timeout", &flags, Some("wall")),
            ("--work-dir", &flags, Some("cwd")),
            ("-v", &flags, Some("workspace")),
            ("cmd", &flags, None),
            ("rocket", &bash, None),
            ("memory", &["memory_bytes", "wall_ms"], Some("memory_bytes")),
            ("cpus", &["cpu_ms", "processes"], None),
            ("maxRetries", &["attempts", "wall_ms"], Some("attempts")),
            ("eta", &["not_before_ms", "wall_ms"], Some("not_before_ms")),
            ("countdown", &["not_before_ms", "delay_ms", "wall_ms"], Some("delay_ms")),
            ("visibility_timeout", &["wall_ms", "deliveries"], None),
        ] {
            assert_eq!(meant(name, known.iter().copied()), ours, "{name}");
        }
    }

    #[test]
    fn languages_have_their_other_names() {
        for (name, ours) in [
            ("py", "python"),
            ("Python3", "python"),
            ("js", "javascript"),
            ("TS", "typescript"),
            ("sh", "bash"),
        ] {
            assert_eq!(language(name), ours);
        }
        assert_eq!(language("cobol"), "cobol");
    }
}
