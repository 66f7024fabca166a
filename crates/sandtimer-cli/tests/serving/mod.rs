//! `sandtimer serve` as a process of a test's own.
#![allow(clippy::disallowed_methods, reason = "the command under test is started here")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// After this a request has failed.
pub const HARD_STOP: Duration = Duration::from_secs(90);

/// A server that is up. Dropping it is SIGKILL, and the end of it.
pub struct TestServer {
    child: Child,
    pub address: String,
}

impl TestServer {
    pub fn command(state: &Path) -> Command {
        Self::command_at("127.0.0.1:0", state)
    }

    pub fn command_at(address: &str, state: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        command.args(["serve", "--listen", address, "--state-dir"]).arg(state);
        for name in
            ["SANDTIMER_STORE", "SANDTIMER_NATS_CREDENTIALS", "SANDTIMER_TOKEN_FILE", "SANDTIMER_WALL"]
        {
            command.env_remove(name);
        }
        command.env("SANDTIMER_CONFIG", "").stdin(Stdio::null());
        command
    }

    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on ").expect("its address").to_owned();
        TestServer { child, address }
    }

    pub fn get(&self, path: &str) -> String {
        let (status, text) = self.ask(path);
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// Whatever the answer's status is.
    pub fn answer(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.ask(path);
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    fn ask(&self, path: &str) -> (u16, String) {
        let config =
            ureq::Agent::config_builder().timeout_global(Some(HARD_STOP)).http_status_as_error(false);
        let answer = ureq::Agent::from(config.build()).get(format!("{}{path}", self.address)).call();
        let mut answer = answer.expect("an answer");
        (answer.status().as_u16(), answer.body_mut().read_to_string().expect("a text"))
    }

    pub fn job(&self, id: &str, wait: Duration) -> Value {
        self.answer(&format!("/v1/jobs/{id}?wait_ms={}", wait.as_millis())).1
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
