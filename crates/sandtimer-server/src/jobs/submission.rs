//! From a body to submissions. A batch is taken whole or not at all, so each is checked before any
//! is submitted.

use sandtimer_jobs::job::{JobSpec, MAX_FAN_OUT_BYTES, SpecError, Submission, UnambiguousValue, expanded};
use serde_json::Value;

use super::view::StoreOwner;
use crate::error::{ApiRejection, Code};

/// Jobs of one batch.
const MAX_BATCH_JOBS: usize = 10_000;

/// Whether a body of this type is one job in each line.
pub(super) fn are_lines(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"]
        .contains(&kind.as_str())
}

/// One job, a list of jobs, or one in each line.
pub(super) fn read(
    bytes: &[u8],
    are_lines: bool,
    store_owner: &StoreOwner,
    networked: bool,
    now_ms: u64,
) -> Result<Vec<Submission>, ApiRejection> {
    let (sources, is_one) = sources(bytes, are_lines)?;
    let (mut batch, mut budget) = (Vec::with_capacity(sources.len()), MAX_FAN_OUT_BYTES);
    for (index, source) in sources.into_iter().enumerate() {
        let index = (!is_one).then_some(index);
        for source in expanded(source, &mut budget).map_err(|error| bad_spec(&error, index))? {
            let spec = checked(source, now_ms).map_err(|error| bad_spec(&error, index))?;
            batch.push(admitted(spec, store_owner, networked)?);
        }
        if batch.len() > MAX_BATCH_JOBS {
            return Err(too_many());
        }
    }
    Ok(batch)
}

fn checked(source: Value, now_ms: u64) -> Result<JobSpec, SpecError> {
    let spec = JobSpec::read(source)?;
    spec.check_deadline(now_ms)?;
    check_paths(&spec)?;
    Ok(spec)
}

fn admitted(
    mut spec: JobSpec,
    store_owner: &StoreOwner,
    networked: bool,
) -> Result<Submission, ApiRejection> {
    if spec.network && !networked {
        let message = "network: this token may not give jobs the host's network";
        return Err(ApiRejection::new(Code::NetworkRefused, message).with("key", "network"));
    }
    spec.queue = store_owner.stored_queue(&spec.queue);
    Ok(Submission { spec, owner: store_owner.name().to_owned() })
}

fn too_many() -> ApiRejection {
    let message = format!("the body has more than {MAX_BATCH_JOBS} jobs; send them in several requests");
    ApiRejection::new(Code::BadSpec, message).with("path", "").with("most", MAX_BATCH_JOBS)
}

/// The values of a body, and whether it is a single one that is no list.
fn sources(bytes: &[u8], are_lines: bool) -> Result<(Vec<Value>, bool), ApiRejection> {
    let mut values = Vec::new();
    for value in
        serde_json::Deserializer::from_slice(bytes).into_iter::<UnambiguousValue>().take(MAX_BATCH_JOBS + 1)
    {
        match value {
            Ok(UnambiguousValue(value)) => values.push(value),
            Err(error) if error.is_data() => {
                let path_prefix =
                    if values.is_empty() { String::new() } else { format!("jobs[{}]: ", values.len()) };
                return Err(
                    ApiRejection::new(Code::BadSpec, format!("{path_prefix}{error}")).with("path", "")
                );
            }
            Err(error) => {
                return Err(ApiRejection::new(Code::BadJson, format!("the body is not JSON: {error}")));
            }
        }
    }
    let mut is_one = false;
    if !are_lines && values.len() == 1 {
        match values.remove(0) {
            Value::Array(list) => values = list,
            one => {
                is_one = true;
                values.push(one);
            }
        }
    }
    if values.is_empty() {
        let message = "the body has no job; send a spec, a list of specs, or one in each line";
        return Err(ApiRejection::new(Code::BadSpec, message).with("path", ""));
    }
    if values.len() > MAX_BATCH_JOBS {
        return Err(too_many());
    }
    Ok((values, is_one))
}

/// Paths of the host are no caller's to give: what works on this store may do so with rights that
/// the caller has not.
pub(super) fn check_paths(spec: &JobSpec) -> Result<(), SpecError> {
    let path = match (&spec.working_directory, spec.workspaces.is_empty()) {
        (Some(_), _) => "cwd",
        (None, false) => "workspaces",
        (None, true) => return Ok(()),
    };
    let problem = "names a directory of the server's machine; leave it out: what a job runs begins in an empty /workspace";
    Err(SpecError { path: path.to_owned(), problem: problem.to_owned() })
}

/// A spec that is refused, with the way to its field; of a batch with its index, from 0 on.
pub(super) fn bad_spec(error: &SpecError, index: Option<usize>) -> ApiRejection {
    let message = match index {
        Some(index) => format!("jobs[{index}]: {error}"),
        None => error.to_string(),
    };
    let rejection = ApiRejection::new(Code::BadSpec, message)
        .with("path", error.path.as_str())
        .with("problem", error.problem.as_str());
    match index {
        Some(index) => rejection.with("index", index),
        None => rejection,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_is_one_job_a_list_or_lines() {
        let of = |text: &str, are_lines| sources(text.as_bytes(), are_lines).expect("valid");
        assert_eq!(of("{\"a\": 1}", false), (vec![json!({"a": 1})], true));
        assert_eq!(of("[{\"a\": 1}]", false), (vec![json!({"a": 1})], false));
        assert_eq!(of("{}\n\n{}\n", false), (vec![json!({}), json!({})], false));
        assert_eq!(of("{}\n", true), (vec![json!({})], false));
        for (text, code) in [("", Code::BadSpec), ("[]", Code::BadSpec), ("{} x", Code::BadJson)] {
            assert_eq!(sources(text.as_bytes(), false).expect_err(text).code, code, "{text}");
        }
        let twice = sources(b"{\"priority\": 1, \"priority\": 2}", false).expect_err("ambiguous");
        assert_eq!(twice.code, Code::BadSpec);
        assert!(twice.message.contains("`priority` is there twice, as 1 and as 2"), "{}", twice.message);
        let many = "1 ".repeat(MAX_BATCH_JOBS + 1);
        assert_eq!(sources(many.as_bytes(), false).expect_err("too many").details["most"], MAX_BATCH_JOBS);
    }

    #[test]
    fn content_type_selects_lines() {
        assert!(are_lines("application/x-ndjson") && are_lines("Application/JSONL; charset=utf-8"));
        assert!(!are_lines("application/json"));
    }
}
