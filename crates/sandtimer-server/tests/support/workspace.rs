//! A workspace and its files over HTTP.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{ServerFixture, TestClient};

/// A workspace of a server, its files over HTTP, and its directory as the attacker's accomplice
/// outside would see it.
pub struct Workspace<'a> {
    pub client: TestClient,
    pub id: String,
    pub serving: &'a ServerFixture,
}

impl<'a> Workspace<'a> {
    pub fn of(serving: &'a ServerFixture) -> Self {
        let client = serving.client();
        let (_, made) = client.post("/v1/workspaces", &json!({}));
        let id = made["workspace_id"].as_str().expect("an id").to_owned();
        Workspace { client, id, serving }
    }

    pub fn directory(&self) -> PathBuf {
        self.serving.state.path().join("workspaces/kept").join(&self.id)
    }

    pub fn at(&self, what: &str, query: &str) -> String {
        format!("/v1/files{what}?workspace={}&{query}", self.id)
    }

    pub fn put(&self, path: &str, body: &[u8]) -> (u16, Value) {
        self.client.put(&self.at("", &format!("path={path}")), body)
    }

    pub fn read(&self, path: &str) -> (u16, Vec<u8>) {
        self.client.bytes(&self.at("", &format!("path={path}")), &[])
    }

    pub fn list(&self, query: &str) -> Value {
        let (status, listing) = self.client.get(&self.at("/list", query));
        assert_eq!(status, 200, "{listing}");
        listing
    }

    pub fn post(&self, what: &str, mut body: Value) -> (u16, Value) {
        body["workspace"] = self.id.clone().into();
        self.client.post(&format!("/v1/files/{what}"), &body)
    }

    /// Has a run make something of the workspace.
    pub fn sh(&self, line: &str) {
        let run = self
            .client
            .run(&json!({"command": ["bash", "-c", line], "workspace": self.id, "wall_ms": 25_000}));
        assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
    }

    /// Every way in, for a path that must not be used; the code that each is refused with.
    pub fn rejection_codes(&self, path: &str) -> Vec<String> {
        let query = format!("path={path}");
        let answers = [
            self.client.get(&self.at("", &query)),
            self.client.put(&self.at("", &query), b"x"),
            self.client.post_bytes(&self.at("/append", &query), b"x"),
        ];
        let refused = |(status, answer): (u16, Value)| {
            assert!((400..500).contains(&status), "{path}: {status} {answer}");
            assert!(answer["message"].is_string() && answer["hint"].is_string(), "{answer}");
            answer["code"].as_str().expect("a code").to_owned()
        };
        answers.into_iter().map(refused).collect()
    }
}

pub fn paths(listing: &Value) -> Vec<&str> {
    listing["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["path"].as_str())
        .collect()
}
