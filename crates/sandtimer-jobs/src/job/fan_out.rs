//! Fan-out: a spec with `map` becomes one job for each item of a list, and one more that waits for
//! them all, if it has `then`.
//!
//! The jobs are ordinary ones: each item's job has the spec's fields, a name with its index, and
//! its item in the environment or, for a handler, as its input. The bound of how many run at the
//! same time is a concurrency key.

use serde_json::{Map, Value, json};

use super::error::{SpecError, missing};
use super::files::digest;
use super::table::{SpecTable, refused};

/// Items of one list. All jobs of a submission are taken together.
const MAX_ITEMS: usize = 9_999;
/// The largest size, in bytes, of the specs of all jobs that one request becomes: a small request
/// must not become gigabytes.
pub const MAX_FAN_OUT_BYTES: usize = 16 << 20;
/// Fields that the jobs of items get, so that a spec cannot have them as well.
const OF_ITEMS: [(&str, &str); 2] = [
    ("concurrency", "has a key of its own in each `map`; use `map.most`"),
    ("steps", "cannot be combined with `map`; use a command, code or a handler"),
];

/// Returns the specs of the jobs that one spec stands for: the spec itself, unless it has `map`.
/// `budget` is the number of bytes that the specs of the request may still have,
/// [`MAX_FAN_OUT_BYTES`] in all; it is reduced by the size of these.
///
/// ```
/// use sandtimer_jobs::job::{MAX_FAN_OUT_BYTES, expanded};
/// use serde_json::json;
///
/// let spec = json!({"name": "square", "command": ["./square"], "map": {"over": [1, 2, 3]}});
/// let mut budget = MAX_FAN_OUT_BYTES;
/// let specs = expanded(spec, &mut budget)?;
/// assert_eq!((specs.len(), &specs[2]["name"]), (3, &json!("square[2]")));
/// # Ok::<(), sandtimer_jobs::job::SpecError>(())
/// ```
///
/// # Errors
/// The first field of `map` that is rejected, or a field that cannot be combined with it.
pub fn expanded(source: Value, budget: &mut usize) -> Result<Vec<Value>, SpecError> {
    let Value::Object(mut fields) = source else { return Ok(vec![source]) };
    let Some(map) = fields.remove("map") else { return Ok(vec![Value::Object(fields)]) };
    for (field, problem) in OF_ITEMS {
        if fields.contains_key(field) {
            return Err(SpecError { path: field.to_owned(), problem: problem.to_owned() });
        }
    }
    let FanOut { items, most, then } = FanOut::read(map)?;
    check_size(&fields, &items, budget)?;
    let name = match fields.get("name") {
        None => "job".to_owned(),
        Some(Value::String(name)) => name.clone(),
        Some(other) => return Err(refused("name", other, "a string")),
    };
    // The same submission has the same key, so that it can be repeated with its idempotency keys.
    let key = digest(json!([&fields, &items]).to_string().as_bytes());
    let concurrency = most.map(|most| json!({"key": format!("map {}", &key[..16]), "most": most}));
    let mut jobs = Vec::with_capacity(items.len() + 1);
    let mut names = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        names.push(format!("{name}[{index}]"));
        jobs.push(job_of(&fields, &names[index], index, item, concurrency.as_ref())?);
    }
    if let Some(mut then) = then {
        then.entry("name").or_insert_with(|| format!("{name}: then").into());
        if let Some(queue) = fields.get("queue") {
            then.entry("queue").or_insert_with(|| queue.clone());
        }
        if let Some(key) = fields.get("idempotency_key").and_then(Value::as_str) {
            then.entry("idempotency_key").or_insert_with(|| format!("{key}: then").into());
            if let Some(releases) = fields.get("release_on_failure") {
                then.entry("release_on_failure").or_insert_with(|| releases.clone());
            }
        }
        then.insert("after".to_owned(), json!(names));
        jobs.push(Value::Object(then));
    }
    Ok(jobs)
}

/// The content of `map`.
struct FanOut {
    items: Vec<Value>,
    most: Option<u32>,
    then: Option<Map<String, Value>>,
}

impl FanOut {
    fn read(map: Value) -> Result<Self, SpecError> {
        let mut table = SpecTable::of(map, "map", 1.0)?;
        let items = match table.take("over") {
            None => return Err(missing("map.over", "a list with an item for each job")),
            Some(Value::Array(items)) if items.is_empty() => {
                return Err(refused("map.over", &Value::Array(items), "a list with at least one item"));
            }
            Some(Value::Array(items)) if items.len() > MAX_ITEMS => {
                let problem = format!("has {} items; use at most {MAX_ITEMS}", items.len());
                return Err(SpecError { path: "map.over".to_owned(), problem });
            }
            Some(Value::Array(items)) => items,
            Some(other) => return Err(refused("map.over", &other, "a list with an item for each job")),
        };
        let most = table.small("most", 1)?;
        let then = match table.take("then") {
            None => None,
            Some(Value::Object(then)) => Some(then),
            Some(other) => return Err(refused("map.then", &other, "a table with the spec of a job")),
        };
        table.done()?;
        if then.as_ref().is_some_and(|then| then.contains_key("after")) {
            let problem = "is every job of the `map`; leave it out";
            return Err(SpecError { path: "map.then.after".to_owned(), problem: problem.to_owned() });
        }
        Ok(FanOut { items, most, then })
    }
}

fn check_size(fields: &Map<String, Value>, items: &[Value], budget: &mut usize) -> Result<(), SpecError> {
    // Plain data with string keys always serialises.
    let one = serde_json::to_string(fields).map_or(0, |text| text.len());
    let all = one.saturating_mul(items.len());
    if let Some(left) = budget.checked_sub(all) {
        *budget = left;
        return Ok(());
    }
    let problem = format!(
        "has {} items, and the spec has {one} bytes: more than the {budget} bytes that are left of {MAX_FAN_OUT_BYTES} for the \
         request; use fewer items, or keep code and inputs where the jobs can read them",
        items.len()
    );
    Err(SpecError { path: "map.over".to_owned(), problem })
}

fn job_of(
    fields: &Map<String, Value>,
    name: &str,
    index: usize,
    item: Value,
    concurrency: Option<&Value>,
) -> Result<Value, SpecError> {
    let mut job = fields.clone();
    job.insert("name".to_owned(), name.into());
    if let Some(Value::String(key)) = job.get_mut("idempotency_key") {
        *key = format!("{key}[{index}]");
    }
    if let Some(concurrency) = concurrency {
        job.insert("concurrency".to_owned(), concurrency.clone());
    }
    if job.contains_key("handler") {
        if job.contains_key("input") {
            let problem = "cannot be combined with `map`, whose items are the inputs; leave it out";
            return Err(SpecError { path: "input".to_owned(), problem: problem.to_owned() });
        }
        job.insert("input".to_owned(), item);
        return Ok(Value::Object(job));
    }
    let text = match item {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let environment = job.entry("env").or_insert_with(|| json!({}));
    // What is not a table is refused with the job.
    if let Some(environment) = environment.as_object_mut() {
        environment.insert("SANDTIMER_ITEM".to_owned(), text.into());
        environment.insert("SANDTIMER_ITEM_INDEX".to_owned(), index.to_string().into());
    }
    Ok(Value::Object(job))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: Value) -> Result<Vec<Value>, SpecError> {
        super::expanded(source, &mut MAX_FAN_OUT_BYTES.clone())
    }

    #[test]
    fn spec_without_map_is_itself() {
        let spec = json!({"command": ["true"]});
        assert_eq!(expanded(spec.clone()).expect("valid"), [spec]);
        assert_eq!(expanded(json!(5)).expect("refused later"), [json!(5)]);
    }

    #[test]
    fn each_item_is_a_job_and_then_waits_for_all() {
        let jobs = expanded(json!({
            "name": "score", "command": ["./score"], "queue": "q", "idempotency_key": "k", "release_on_failure": true, "env": {"A": "1"},
            "map": {"over": ["a", {"n": 2}], "most": 1, "then": {"command": ["./sum"]}},
        }));
        let jobs = jobs.expect("valid");
        assert_eq!(jobs.len(), 3);
        assert_eq!(jobs[0]["name"], "score[0]");
        assert_eq!(jobs[0]["env"], json!({"A": "1", "SANDTIMER_ITEM": "a", "SANDTIMER_ITEM_INDEX": "0"}));
        assert_eq!(jobs[1]["env"]["SANDTIMER_ITEM"], "{\"n\":2}");
        assert_eq!(jobs[1]["idempotency_key"], "k[1]");
        assert_eq!(jobs[0]["concurrency"], jobs[1]["concurrency"]);
        let then = json!({
            "name": "score: then", "command": ["./sum"], "queue": "q", "idempotency_key": "k: then", "release_on_failure": true,
            "after": ["score[0]", "score[1]"],
        });
        assert_eq!(jobs[2], then);
    }

    #[test]
    fn item_is_the_input_of_a_handler() {
        let jobs = expanded(json!({"handler": "h", "map": {"over": [{"n": 1}]}})).expect("valid");
        assert_eq!(jobs, [json!({"handler": "h", "input": {"n": 1}, "name": "job[0]"})]);
    }

    #[test]
    fn maps_of_one_request_share_its_bytes() {
        let map = json!({"code": "x".repeat(1_000_000), "map": {"over": [1, 2, 3, 4, 5]}});
        let mut budget = MAX_FAN_OUT_BYTES;
        let fits = (0..).take_while(|_| super::expanded(map.clone(), &mut budget).is_ok()).count();
        assert_eq!(fits, 3);
    }

    #[test]
    fn malformed_values_are_refused() {
        let (many, large) = (vec![0; MAX_ITEMS + 1], "x".repeat(MAX_FAN_OUT_BYTES / 4));
        for (more, path, part) in [
            (json!({"map": [1]}), "map", "a table"),
            (json!({"map": {"over": [1]}, "name": 5}), "name", "a string"),
            (json!({"map": {}}), "map.over", "is missing"),
            (json!({"map": {"over": "abc"}}), "map.over", "a list with an item for each job"),
            (json!({"map": {"over": {"a": 1}}}), "map.over", "a list with an item for each job"),
            (json!({"map": {"over": []}}), "map.over", "at least one item"),
            (json!({"map": {"over": many}}), "map.over", "at most 9999"),
            (json!({"code": large, "map": {"over": [1, 2, 3, 4, 5]}}), "map.over", "use fewer items"),
            (json!({"map": {"over": [1], "most": 0}}), "map.most", "from 1 to"),
            (json!({"map": {"over": [1], "then": 5}}), "map.then", "the spec of a job"),
            (json!({"map": {"over": [1], "then": {"after": ["x"]}}}), "map.then.after", "leave it out"),
            (json!({"map": {"over": [1], "each": 5}}), "map.each", "unknown field"),
            (json!({"map": {"over": [1]}, "concurrency": {"key": "k"}}), "concurrency", "`map.most`"),
            (json!({"map": {"over": [1]}, "steps": []}), "steps", "cannot be combined"),
            (json!({"map": {"over": [1]}, "handler": "h", "input": 1}), "input", "leave it out"),
        ] {
            let error = expanded(more.clone()).expect_err("refused");
            assert_eq!(error.path, path, "{more}: {error}");
            assert!(error.problem.contains(part), "{more}: {error}");
        }
    }
}
