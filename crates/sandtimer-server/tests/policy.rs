//! The defaults of requests, over HTTP: limits by what is executed, and how interpreters are
//! started.

use crate::support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::limits::Setting;
use sandtimer::model::{LimitKind, Source};
use sandtimer_server::{Defaults, PoolSettings, Settings};
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens, wait_until};

fn wall(milliseconds: u64, source: Source, origin: &str) -> Vec<(Source, Limits)> {
    let limits = Limits::new().wall(Duration::from_millis(milliseconds)).with_origin(origin);
    vec![(source, limits)]
}

fn by_kind(settings: &mut Settings) {
    settings.defaults = Defaults {
        commands: wall(20_000, Source::Env, "COMMAND_TIMEOUT_MS"),
        code: wall(10_000, Source::Config, "/etc/s.toml:3"),
        javascript: wall(5_000, Source::Env, "VM_EXECUTION_TIMEOUT_MS"),
    };
    settings.maxima = Limits::new().wall(Duration::from_secs(60));
}

fn opened(client: &TestClient, path: &str, body: Value) -> String {
    let (status, context) = client.post(path, &body);
    assert_eq!(status, 201, "{context}");
    format!("{path}/{}", context["context_id"].as_str().expect("an id"))
}

/// The wall limit that applied to what was executed.
fn effective(client: &TestClient, at: &str, body: Value) -> Value {
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    let run = client.get(&format!("/v1/runs/{}", answer["run_id"].as_str().expect("an id"))).1;
    run["effective"]["wall_ms"].clone()
}

#[test]
fn inner_limit_overrides_defaults_by_kind() {
    let serving = ServerFixture::with(by_kind);
    let client = serving.client();
    let of_commands = json!({"limit": 20_000, "source": "env", "origin": "COMMAND_TIMEOUT_MS"});
    let of_code = json!({"limit": 10_000, "source": "config", "origin": "/etc/s.toml:3"});
    let ceiling = json!({"limit": 60_000, "source": "ceiling"});
    let run = client.post("/v1/runs", &json!({"code": "1", "language": "python"})).1;
    assert_eq!(run["effective"]["wall_ms"], of_commands);
    let free = client.post("/v1/runs", &json!({"command": ["true"], "wall_ms": 0})).1;
    assert_eq!(free["effective"]["wall_ms"], ceiling);

    let context = opened(&client, "/v1/contexts", json!({}));
    assert_eq!(effective(&client, &context, json!({"code": "1"})), of_code);
    for unlimited in [json!(0), json!(null), json!("unlimited")] {
        let limit = effective(&client, &context, json!({"code": "1", "wall_ms": unlimited}));
        assert_eq!(limit, ceiling, "{unlimited}");
    }
    let open_ended = opened(&client, "/v1/contexts", json!({"wall_ms": 0}));
    assert_eq!(effective(&client, &open_ended, json!({"code": "1"})), ceiling);
    let short = json!({"code": "1", "wall_ms": 9_000});
    assert_eq!(effective(&client, &open_ended, short)["limit"], 9_000);

    let session = opened(&client, "/v1/sessions", json!({}));
    assert_eq!(effective(&client, &session, json!({"command": "true"})), of_commands);
}

#[test]
fn settings_of_one_call_do_not_apply_to_the_next() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (path, source) in [("/v1/contexts", "import time; time.sleep(0.4)"), ("/v1/sessions", "sleep 0.4")] {
        let at = opened(&client, path, json!({}));
        let first = client.post(&format!("{at}/execute"), &json!({"code": source, "wall_ms": 100})).1;
        assert_eq!(first["outcome"]["ending"], "timeout", "{first}");
        let second = client.post(&format!("{at}/execute"), &json!({"code": source})).1;
        assert_eq!(second["outcome"]["ok"], true, "{second}");
        assert_eq!(effective(&client, &at, json!({"code": "true"})), Value::Null);
    }
}

#[test]
fn a_verdict_names_the_variable_that_set_its_limit() {
    let serving = ServerFixture::with(|settings| {
        settings.defaults.code = wall(200, Source::Env, "INTERPRETER_EXECUTION_TIMEOUT_MS");
    });
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({}));
    let run = client.post(&format!("{at}/execute"), &json!({"code": "while True: pass"})).1;
    let verdict = &run["outcome"]["verdict"];
    assert_eq!(
        (&verdict["kind"], &verdict["source"], &verdict["origin"]),
        (&json!("wall"), &json!("env"), &json!("INTERPRETER_EXECUTION_TIMEOUT_MS"))
    );
    let sentence = verdict["sentence"].as_str().expect("a sentence");
    assert!(sentence.contains("(set by INTERPRETER_EXECUTION_TIMEOUT_MS)"), "{sentence}");
}

#[test]
fn inner_zero_disables_the_limit() {
    let serving = ServerFixture::with(|settings| {
        let mut limits = Limits::new().with_origin("MAX_OUTPUT_SIZE_BYTES");
        limits.set(LimitKind::Output, Setting::Unlimited);
        settings.defaults = Defaults::for_all(vec![(Source::Env, limits)]);
    });
    let body = json!({"command": ["head", "-c", "11000000", "/dev/zero"]});
    let run = serving.client().post("/v1/runs", &body).1;
    assert_eq!(
        (&run["effective"]["output_bytes"], &run["outcome"]["stdout_truncated"]),
        (&Value::Null, &json!(false))
    );
}

/// Starts a server whose interpreters of a language run this script first; also returns its logged
/// messages.
fn prewarmed(language: &str, script: &str, limit: Duration) -> (ServerFixture, Arc<Mutex<Vec<String>>>) {
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let logged = messages.clone();
    let serving = ServerFixture::with(|settings| {
        settings.interpreters.prewarm_limit = limit;
        let pool = PoolSettings { ready: 1, prewarm: Some(script.to_owned()) };
        match language {
            "python" => settings.interpreters.python = pool,
            "javascript" => settings.interpreters.javascript = pool,
            _ => settings.interpreters.shell_prewarm = pool.prewarm,
        }
        settings.host.log_error =
            Box::new(move |message| logged.lock().expect("whole").push(message.to_owned()));
    });
    (serving, messages)
}

fn metric(client: &TestClient, line: &str) -> u64 {
    let text = client.get("/metrics").1;
    let text = text.as_str().expect("text");
    let found = text.lines().find_map(|found| found.strip_prefix(line));
    found.unwrap_or_else(|| panic!("{line} in {text}")).trim().parse().expect("a number")
}

#[test]
fn what_a_prewarm_script_imports_is_there_in_every_context() {
    let script = "import fractions\nhalf = fractions.Fraction(1, 2)";
    let (serving, messages) = prewarmed("python", script, Duration::from_secs(30));
    let client = serving.client();
    for _ in 0..2 {
        let (status, context) = client.post("/v1/contexts", &json!({}));
        assert_eq!((status, &context["warnings"]), (201, &json!([])), "{context}");
        let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
        let shown = client.post(&at, &json!({"code": "str(half + fractions.Fraction(1, 4))"})).1;
        assert_eq!(shown["outcome"]["value"], "3/4", "{shown}");
    }
    let (hits, misses) = (
        metric(&client, "sandtimer_pool_hits_total{language=\"python\"}"),
        metric(&client, "sandtimer_pool_misses_total{language=\"python\"}"),
    );
    assert_eq!(hits + misses, 2);
    assert_eq!(metric(&client, "sandtimer_prewarm_failures_total{language=\"python\"}"), 0);
    assert_eq!(*messages.lock().expect("whole"), Vec::<String>::new());
}

#[test]
fn failed_python_prewarm_is_logged_and_context_opens() {
    for (script, limit, reason) in [
        ("x = 1\nwhile True: pass", Duration::from_millis(300), "did not end within its limit of 300ms"),
        ("x = 1\nimport no_such_module", Duration::from_secs(30), "it raised ModuleNotFoundError"),
        ("x = 1\nimport os; os._exit(3)", Duration::from_secs(30), "exit code 3"),
        ("x = 1\nthis is no Python", Duration::from_secs(30), "it raised SyntaxError"),
        (
            "x = 1\nimport threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
            Duration::from_secs(30),
            "1 threads",
        ),
    ] {
        let (serving, messages) = prewarmed("python", script, limit);
        let client = serving.client();
        let (status, context) = client.post("/v1/contexts", &json!({}));
        assert_eq!(status, 201, "{context}");
        let warning = context["warnings"][0].as_str().expect("a warning");
        assert!(warning.starts_with("prewarm.python did not run: ") && warning.contains(reason), "{warning}");
        let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
        let shown = client.post(&at, &json!({"code": "'x' in globals()"})).1;
        assert_eq!(shown["outcome"]["value"], false, "{shown}");
        assert_eq!(metric(&client, "sandtimer_prewarm_failures_total{language=\"python\"}"), 1);
        assert_eq!(*messages.lock().expect("whole"), [warning]);
    }
}

#[test]
fn javascript_prewarm_state_is_in_every_context() {
    let script =
        "import path from 'node:path';\nconst half = await Promise.resolve(20);\nconst fs = require('fs');";
    let (serving, messages) = prewarmed("javascript", script, Duration::from_secs(30));
    let client = serving.client();
    for language in ["javascript", "typescript", "javascript"] {
        let (status, context) = client.post("/v1/contexts", &json!({"language": language}));
        assert_eq!((status, &context["warnings"]), (201, &json!([])), "{context}");
        let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
        let shown = client.post(&at, &json!({"code": "half + path.sep.length + typeof fs.readFileSync"})).1;
        assert_eq!(shown["outcome"]["value"], "21function", "{shown}");
    }
    assert_eq!(metric(&client, "sandtimer_prewarm_failures_total{language=\"javascript\"}"), 0);
    assert_eq!(*messages.lock().expect("whole"), Vec::<String>::new());
}

#[test]
fn failed_javascript_prewarm_is_logged_and_context_opens() {
    for (script, limit, reason) in [
        ("var x = 1; while (true);", 300, "did not end within its limit of 300ms"),
        ("var x = 1; await new Promise(() => {})", 300, "did not end within its limit of 300ms"),
        ("var x = 1; throw new TypeError('no')", 30_000, "it raised TypeError: no"),
        ("var x = 1; import none from 'no-such-module'", 30_000, "it raised Error: Cannot find package"),
        ("var x = 1; process.exit(3)", 30_000, "it ended its interpreter"),
        ("this is no JavaScript", 30_000, "it raised SyntaxError"),
    ] {
        let (serving, messages) = prewarmed("javascript", script, Duration::from_millis(limit));
        let client = serving.client();
        for _ in 0..2 {
            let (status, context) = client.post("/v1/contexts", &json!({"language": "javascript"}));
            assert_eq!(status, 201, "{context}");
            let warning = context["warnings"][0].as_str().expect("a warning");
            let begins = "prewarm.javascript did not run: ";
            assert!(warning.starts_with(begins) && warning.contains(reason), "{warning}");
            let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
            let shown = client.post(&at, &json!({"code": "typeof x"})).1;
            assert_eq!(shown["outcome"]["value"], "undefined", "{shown}");
        }
        assert_eq!(metric(&client, "sandtimer_prewarm_failures_total{language=\"javascript\"}"), 1);
        assert_eq!(messages.lock().expect("whole").len(), 1);
    }
}

/// What a command of a session comes to: its outcome.
fn outcome(client: &TestClient, at: &str, body: Value) -> Value {
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    answer["outcome"].clone()
}

/// What a command of a session prints.
fn printed(client: &TestClient, at: &str, command: &str) -> String {
    let outcome = outcome(client, at, json!({"command": command, "wall_ms": 20_000}));
    assert_eq!((&outcome["ok"], &outcome["stderr"]), (&json!(true), &json!("")), "{command}: {outcome}");
    outcome["stdout"].as_str().expect("text").to_owned()
}

/// Everything of a shell that lasts, and noise on every stream; its last command fails, and a
/// process of it continues after its end.
const SHELL_SCRIPT: &str = r#"
shopt -s extglob globstar; set -u -o pipefail
export LEVEL=1
own='it'\''s "own"'
declare -A table=(["a b"]=c)
readonly FIXED=7
double() { case $1 in +([0-9])) echo $(($1 * 2)) ;; esac; }
alias twice='double'
mkdir -p made && cd made
echo noise; echo noise >&2
cat <<NOISE
more noise
NOISE
false \"#;
const SHELL_SHOWN: &str =
    r#"twice 21; echo "$own ${table["a b"]} $FIXED $LEVEL ${PWD##*/} $-"; shopt -q globstar && echo set"#;

#[test]
fn shell_prewarm_script_applies_to_every_session() {
    let (serving, said) = prewarmed("bash", SHELL_SCRIPT, Duration::from_secs(30));
    let client = serving.client();
    for (path, body) in [("/v1/sessions", json!({})), ("/v1/contexts", json!({"language": "bash"}))] {
        let (status, session) = client.post(path, &body);
        assert_eq!((status, &session["warnings"], &session["executions"]), (201, &json!([]), &json!(0)));
        assert_eq!(
            (&session["checkpoint"], &session["can_undo"]),
            (&json!(true), &json!(false)),
            "{session}"
        );
        let at = format!("{path}/{}", session["context_id"].as_str().expect("an id"));
        let shown = printed(&client, &at, SHELL_SHOWN);
        assert_eq!(shown, "42\nit's \"own\" c 7 1 made huBs\nset\n");
        // A loop in the shell itself rolls back to the checkpoint after the script.
        let looped = outcome(&client, &at, json!({"command": "own=; while :; do :; done", "wall_ms": 300}));
        assert_eq!(looped["state"], "rolled_back", "{looped}");
        assert_eq!(printed(&client, &at, SHELL_SHOWN), shown);
        assert_eq!(client.post(&format!("{at}/undo"), &json!({})).0, 200);
        assert_eq!(printed(&client, &at, SHELL_SHOWN), shown);
    }
    assert_eq!(metric(&client, "sandtimer_prewarm_failures_total{language=\"bash\"}"), 0);
    assert_eq!(*said.lock().expect("whole"), Vec::<String>::new());
}

#[test]
fn shell_after_exit_has_the_prewarm_state() {
    let (serving, _) = prewarmed("bash", SHELL_SCRIPT, Duration::from_secs(30));
    let client = serving.client();
    let at = opened(&client, "/v1/sessions", json!({}));
    let command = "export LEVEL=2 MORE=3; own=changed; later=1; double() { :; }; set +u; cd /tmp; exit 4";
    let ended = outcome(&client, &at, json!({"command": command}));
    assert_eq!((&ended["exit_code"], &ended["state"]), (&json!(4), &json!("reset")), "{ended}");
    let shown = printed(&client, &at, &format!("{SHELL_SHOWN}; echo $MORE ${{later-none}}"));
    assert_eq!(shown, "42\nit's \"own\" c 7 2 tmp huBs\nset\n3 none\n");
    // As after a script that has the shell end at errors.
    let (serving, _) = prewarmed("bash", "set -e\nfixed=1; readonly fixed", Duration::from_secs(30));
    let client = serving.client();
    let at = opened(&client, "/v1/sessions", json!({}));
    for _ in 0..2 {
        assert_eq!(printed(&client, &at, "echo $fixed $-"), "1 ehBs\n");
        let ended = outcome(&client, &at, json!({"command": "cd /tmp; false"}));
        assert_eq!((&ended["exit_code"], &ended["state"]), (&json!(1), &json!("reset")), "{ended}");
        assert_eq!(printed(&client, &at, "pwd"), "/tmp\n");
    }
}

#[test]
fn new_session_in_another_sandbox_reruns_prewarm() {
    let (serving, _) = prewarmed("bash", SHELL_SCRIPT, Duration::from_secs(30));
    let client = serving.client();
    let at = opened(&client, "/v1/sessions", json!({}));
    assert_eq!(printed(&client, &at, ":"), "");
    wait_until("there is an undo", || client.get(&at).1["can_undo"] == true);
    // No process more, so no checkpoint.
    assert_eq!(printed(&client, &at, "own=changed; ulimit -u 1"), "");
    let looped = outcome(&client, &at, json!({"command": "while :; do :; done", "wall_ms": 300}));
    assert_eq!(looped["state"], "reset", "{looped}");
    // After the next command there is one, as soon as its checkpoint is made.
    assert_eq!(client.get(&at).1["can_undo"], false);
    assert_eq!(printed(&client, &at, SHELL_SHOWN), "42\nit's \"own\" c 7 1 made huBs\nset\n");
}

#[test]
fn shell_prewarm_may_leave_processes_in_its_session() {
    let script =
        "seen=$WHO:$PWD; cd /\nsleep 600 & job=$!\n(while :; do echo noise; sleep 0.05; done) & loud=$!";
    let (serving, _) = prewarmed("bash", script, Duration::from_secs(30));
    let client = serving.client();
    let body = json!({"cwd": "/tmp/there", "env": {"WHO": "me"}});
    let at = opened(&client, "/v1/sessions", body);
    assert_eq!(printed(&client, &at, "echo $seen $PWD"), "me:/tmp/there /tmp/there\n");
    assert_eq!(printed(&client, &at, "sleep 0.3; kill -0 $job $loud && echo both"), "both\n");
    let looped = outcome(&client, &at, json!({"command": "while :; do :; done", "wall_ms": 300}));
    assert_eq!(looped["state"], "rolled_back", "{looped}");
    assert_eq!(printed(&client, &at, "kill -0 $job $loud && echo both"), "both\n");
}

#[test]
fn failed_shell_prewarm_is_logged_and_session_opens() {
    let deaf = "x=1; trap '' INT TERM; (trap '' INT TERM; sleep 600 & wait)";
    for (script, limit, reason) in [
        ("x=1; while :; do :; done", 300, "it did not end within its limit of 300ms"),
        ("x=1; sleep 600", 300, "it did not end within its limit of 300ms"),
        (deaf, 300, "it did not end within its limit of 300ms"),
        ("x=1; exit 3", 30_000, "it ended its shell (exit code 3)"),
        ("x=1; set -e; false; x=2", 30_000, "it ended its shell (exit code 1)"),
        ("x=1; exec true", 30_000, "it ended its shell (exit code 0)"),
        ("x=1\nif then fi", 30_000, "it cannot be read: "),
        ("x=1\necho 'never closed", 30_000, "it cannot be read: "),
        ("x=1\ncat <<END\nnever closed", 30_000, "it cannot be read: "),
        ("x=1\0", 30_000, "it cannot be read: it has a NUL byte"),
        ("x=1; set -n", 30_000, "it ended its shell (exit code 125)"),
    ] {
        let (serving, messages) = prewarmed("bash", script, Duration::from_millis(limit));
        let client = serving.client();
        for _ in 0..2 {
            let (status, session) = client.post("/v1/sessions", &json!({}));
            assert_eq!(status, 201, "{session}");
            let warning = session["warnings"][0].as_str().expect("a warning");
            let begins = "prewarm.bash did not run: ";
            assert!(warning.starts_with(begins) && warning.contains(reason), "{script}: {warning}");
            let at = format!("/v1/sessions/{}", session["context_id"].as_str().expect("an id"));
            let left = "grep -ls sleep /proc/[0-9]*/comm | wc -l";
            assert_eq!(printed(&client, &at, &format!("echo ${{x-none}}; {left}")), "none\n0\n");
        }
        assert_eq!(metric(&client, "sandtimer_prewarm_failures_total{language=\"bash\"}"), 1);
        assert_eq!(messages.lock().expect("whole").len(), 1, "{script}");
    }
}

#[test]
fn token_quota_is_enforced_and_ends_free_slots() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("alice one runs=1 contexts=1 sessions=2\nbob two\n"));
    });
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let sleeping = json!({"command": ["sleep", "50"], "wait_ms": 0});
    let (_, run) = alice.post("/v1/runs", &sleeping);
    let refused = |path: &str, body: &Value, quota: &str, limit: u64| {
        let (status, answer) = alice.post(path, body);
        assert_eq!(
            (status, &answer["code"], &answer["retryable"]),
            (429, &json!("quota"), &json!(true)),
            "{answer}"
        );
        assert_eq!(answer["details"], json!({"quota": quota, "limit": limit}));
    };
    refused("/v1/runs", &sleeping, "runs", 1);
    // A job waits for a slot of the server's, and its runs for no place of the quota's.
    let job = alice.post("/v1/jobs", &json!({"command": ["true"]})).1["jobs"][0]["job_id"].clone();
    let (_, ended) = alice.get(&format!("/v1/jobs/{}?wait_ms=60000", job.as_str().expect("an id")));
    assert_eq!(ended["ok"], true, "{ended}");
    // Another's runs take no place, and a run in a context none of the runs'.
    assert_eq!(bob.post("/v1/runs", &sleeping).0, 200);
    assert_eq!(bob.post("/v1/runs", &sleeping).0, 200);
    let context = opened(&alice, "/v1/contexts", json!({}));
    refused("/v1/contexts", &json!({}), "contexts", 1);
    assert_eq!(alice.post(&format!("{context}/execute"), &json!({"code": "1"})).0, 200);
    assert_eq!(alice.delete(&context).0, 204);
    assert_eq!(alice.post("/v1/contexts", &json!({})).0, 201);
    assert_eq!(alice.post("/v1/sessions", &json!({})).0, 201);
    assert_eq!(alice.post("/v1/contexts", &json!({"language": "bash"})).0, 201);
    refused("/v1/sessions", &json!({}), "sessions", 2);
    let kill = format!("/v1/runs/{}/kill", run["run_id"].as_str().expect("an id"));
    assert_eq!(alice.post(&kill, &json!({})).1["status"], "ended");
    assert_eq!(alice.post("/v1/runs", &json!({"command": ["no-such-command"]})).0, 422);
    assert_eq!(alice.post("/v1/runs", &json!({"command": ["true"]})).0, 200);
}
