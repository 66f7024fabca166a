//! Resources: an owner's runs as documents, for clients that show or attach them. Reading one
//! changes nothing.
//!
//! ```text
//! sandtimer://runs              all of them, as list_runs has them: JSON
//! sandtimer://runs/ID           one: the Outcome once it has ended
//! sandtimer://runs/ID/stdout    what it has written, its beginning and its end; and stderr
//! ```

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate};
use sandtimer::engine::Stream;
use serde_json::{Value, json};

use super::conversation::OwnerState;
use super::excerpt::{Excerpt, MAX_EXCERPT_BYTES};
use super::read::described;
use crate::error::ApiRejection;
use crate::registry::OwnedResource;
use crate::runs::LiveRun;

const RUNS: &str = "sandtimer://runs";
const PLAIN_TYPE: &str = "text/plain";
const JSON_TYPE: &str = "application/json";
/// Runs whose output is listed, the newest; those before are found by their ids.
const MAX_LISTED: usize = 100;
/// Bytes of the Outcome that a resource has.
const MAX_OUTCOME_BYTES: u64 = 1 << 20;
/// Characters of a command that are its output's name.
const MAX_NAME_CHARS: usize = 80;

/// The runs of an owner, the newest first.
fn runs_of(owner: &OwnerState) -> Vec<Arc<LiveRun>> {
    let mut runs = owner.service.contexts.runs.records.of(&owner.owner);
    runs.sort_by_cached_key(|run| std::cmp::Reverse(run.created_at_ms()));
    runs
}

/// What there is to read.
pub(super) fn listed(owner: &OwnerState) -> Vec<Resource> {
    let all = Resource::new(RUNS, "runs")
        .with_description("Your runs, as list_runs shows them, including ended ones.")
        .with_mime_type(JSON_TYPE);
    let output = |run: &Arc<LiveRun>| {
        let name: String = run.command_line().chars().take(MAX_NAME_CHARS).collect();
        Resource::new(format!("{RUNS}/{}/stdout", run.id()), name.replace('\n', " "))
            .with_description(format!("What the run {} has written ({}).", run.id(), run.status()))
            .with_mime_type(PLAIN_TYPE)
    };
    std::iter::once(all).chain(runs_of(owner).iter().take(MAX_LISTED).map(output)).collect()
}

/// What the names of resources are made of.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |path: &str, name: &str, description: &str, kind: &str| {
        ResourceTemplate::new(format!("{RUNS}/{path}"), name)
            .with_description(description)
            .with_mime_type(kind)
    };
    vec![
        template("{run_id}", "run", "A run: how it stands, or its Outcome.", JSON_TYPE),
        template(
            "{run_id}/stdout",
            "output",
            "What a run has written, its beginning and its end.",
            PLAIN_TYPE,
        ),
        template(
            "{run_id}/stderr",
            "errors",
            "What code in an interpreter has written to stderr.",
            PLAIN_TYPE,
        ),
    ]
}

/// Reads the contents of a resource.
pub(super) async fn read(owner: &OwnerState, uri: &str) -> Result<ResourceContents, ErrorData> {
    let unknown = |why: String| ErrorData::resource_not_found(why, Some(json!({"uri": uri})));
    let failed = |refused: ApiRejection| unknown(refused.message);
    let path = uri.strip_prefix(RUNS).ok_or_else(|| unknown(format!("`{uri}` is none of {RUNS}")))?;
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let found = |id: &str| owner.service.contexts.runs.get(id, &owner.owner).map_err(failed);
    let as_json = |value: &Value| ResourceContents::text(value.to_string(), uri).with_mime_type(JSON_TYPE);
    match parts[..] {
        [] => {
            let shown: Vec<Value> = runs_of(owner).iter().map(|run| described(run)).collect();
            Ok(as_json(&json!({"runs": shown})))
        }
        [id] => {
            let run = found(id)?;
            let bytes = run.outcome_bytes();
            if bytes > MAX_OUTCOME_BYTES {
                let why = format!(
                    "the Outcome of the run `{}` has {bytes} bytes, and a resource has at most {MAX_OUTCOME_BYTES}; read {uri}/stdout, \
                     or its output in pieces with read_output",
                    run.id()
                );
                return Err(unknown(why));
            }
            let view = run.view().await.map_err(failed)?;
            // Plain data with text keys always serialises.
            let text = serde_json::to_string(&view).unwrap_or_default();
            Ok(ResourceContents::text(text, uri).with_mime_type(JSON_TYPE))
        }
        [id, stream @ ("stdout" | "stderr")] => {
            let (run, stream) =
                (found(id)?, if stream == "stdout" { Stream::Stdout } else { Stream::Stderr });
            let excerpt = Excerpt::read(&run, stream, 0, MAX_EXCERPT_BYTES).await.map_err(failed)?;
            Ok(ResourceContents::text(excerpt.text(&run), uri))
        }
        _ => Err(unknown(format!("`{uri}` is neither {RUNS}, {RUNS}/ID nor {RUNS}/ID/stdout"))),
    }
}
