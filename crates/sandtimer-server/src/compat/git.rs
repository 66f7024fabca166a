//! `git clone`, as a command of the session.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;
use serde_json::{Value, json};

use super::answer::success;
use super::caller::{BodyFields, Caller, NO_SESSION};
use super::command::SandboxCommand;
use super::failure::ContainerFailure;
use super::sandbox;
use super::shell::quoted;
use super::storage::WORKSPACE;
use crate::connection::Connection;
use crate::contexts::ContextService;

/// How long a clone may take by default.
const CLONE: u64 = 600_000_000_000;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new().route("/api/git/checkout", post(checkout))
}

/// The directory that git would make of a URL.
fn name_of(url: &str) -> &str {
    let path = url.trim_end_matches('/').trim_end_matches(".git");
    path.rsplit(['/', ':']).next().filter(|name| !name.is_empty()).unwrap_or("repository")
}

async fn checkout(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let url = fields.string("repoUrl")?.filter(|url| !url.is_empty() && !url.contains('\0'));
    let url = url
        .ok_or_else(|| ContainerFailure::new(400, "INVALID_GIT_URL", "repoUrl: give the repository's URL"))?;
    let branch = fields.string("branch")?.filter(|branch| !branch.is_empty());
    let target = fields.string("targetDir")?.unwrap_or_else(|| format!("{WORKSPACE}/{}", name_of(&url)));
    let depth = fields.number("depth")?;
    let mut limits = sandbox::timeout(&mut fields, "timeoutMs")?;
    if limits.get(LimitKind::Wall) == Setting::Inherit {
        limits.set(LimitKind::Wall, Setting::At(CLONE));
    }
    if [branch.as_deref().unwrap_or_default(), &target].iter().any(|text| text.contains('\0')) {
        return Err(ContainerFailure::invalid("targetDir", "it or branch has a NUL byte"));
    }
    let mut command = "GIT_TERMINAL_PROMPT=0 git clone --quiet".to_owned();
    if let Some(branch) = &branch {
        command.push_str(&format!(" --branch {}", quoted(branch)));
    }
    if let Some(depth) = depth {
        command.push_str(&format!(" --depth {depth}"));
    }
    let at = quoted(&target);
    // A repository without commits has a branch, a clone of a tag has none.
    let branch_of = format!("git -C {at} symbolic-ref --quiet --short HEAD || echo HEAD");
    command.push_str(&format!(" -- {} {at} && {{ {branch_of}; }}", quoted(&url)));
    let session = Some(caller.session(&mut fields)?).filter(|session| session != NO_SESSION);
    let call = SandboxCommand { command, session, directory: None, variables: Vec::new(), limits };
    let result = call.result_of(&service, &caller, &connection).await?;
    if result["exitCode"] != 0 {
        return Err(failed(&result, &url));
    }
    Ok(success(json!({"repoUrl": url, "branch": result["stdout"], "targetDir": target})))
}

/// The error of git, as far as its messages show the cause.
fn failed(result: &Value, url: &str) -> ContainerFailure {
    let stderr = result["stderr"].as_str().unwrap_or_default();
    let has = |text: &str| stderr.contains(text);
    let (status, code) =
        if has("Could not resolve host") || has("unable to access") || has("Could not connect") {
            (502, "GIT_NETWORK_ERROR")
        } else if has("Authentication failed")
            || has("could not read Username")
            || has("Permission denied (publickey")
        {
            (401, "GIT_AUTH_FAILED")
        } else if has("Remote branch") {
            (404, "GIT_BRANCH_NOT_FOUND")
        } else if has("not found") || has("does not exist") || has("does not appear to be a git repository") {
            (404, "GIT_REPOSITORY_NOT_FOUND")
        } else {
            (500, "GIT_CLONE_FAILED")
        };
    ContainerFailure::new(status, code, format!("git clone failed: {stderr}"))
        .with("repository", url)
        .with("stderr", stderr)
        .with("exitCode", result["exitCode"].clone())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_clone_is_called_as_git_calls_it() {
        for (url, name) in [
            ("https://example.org/a/b.git", "b"),
            ("git@example.org:a/b", "b"),
            ("git@example.org:b.git", "b"),
            ("/workspace/origin/", "origin"),
            ("", "repository"),
        ] {
            assert_eq!(super::name_of(url), name);
        }
    }
}
