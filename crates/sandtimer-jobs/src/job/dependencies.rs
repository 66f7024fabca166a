//! Which jobs wait for which, among those that are submitted together.

use std::collections::{HashMap, HashSet};

use super::error::SpecError;
use super::store::Submission;

/// Jobs that those of one submission wait for, counted for each of them.
const MAX_WAITS: usize = 20_000;

/// Returns the ids of the jobs that each submission waits for. A name is that of a job that is
/// submitted together with it; everything else is an id of the store, which checks it.
///
/// # Errors
/// If several of the jobs have a name, they wait for each other in a circle, or for too many jobs.
pub fn resolve_names(submissions: &[Submission], ids: &[String]) -> Result<Vec<Vec<String>>, SpecError> {
    if submissions.iter().all(|one| one.spec.after.jobs.is_empty()) {
        return Ok(vec![Vec::new(); submissions.len()]);
    }
    let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, one) in submissions.iter().enumerate() {
        named.entry(&one.spec.name).or_default().push(index);
    }
    let mut needs: Vec<Vec<usize>> = vec![Vec::new(); submissions.len()];
    let mut resolved = vec![Vec::new(); submissions.len()];
    let mut waits = 0;
    for (index, one) in submissions.iter().enumerate() {
        let mut distinct = HashSet::new();
        for (position, name) in one.spec.after.jobs.iter().enumerate() {
            if !distinct.insert(name.as_str()) {
                continue;
            }
            waits += 1;
            match named.get(name.as_str()).map(Vec::as_slice) {
                None => resolved[index].push(name.clone()),
                Some([other]) => {
                    needs[index].push(*other);
                    resolved[index].push(ids[*other].clone());
                }
                Some(several) => {
                    let problem = format!(
                        "`{name}` is the name of {} jobs that are submitted together (jobs of a `map` are named after it); give each a `name`",
                        several.len()
                    );
                    return Err(SpecError { path: format!("after[{position}]"), problem });
                }
            }
        }
    }
    if waits > MAX_WAITS {
        let problem = format!(
            "the jobs that are submitted together wait for {waits} jobs, counted for each of them; use at most {MAX_WAITS}, such as \
             one job that waits for all and others that wait for that one"
        );
        return Err(SpecError { path: "after".to_owned(), problem });
    }
    check_circle(submissions, &needs)?;
    Ok(resolved)
}

/// Refuses jobs of which each waits for another one of them, naming one way around.
fn check_circle(submissions: &[Submission], needs: &[Vec<usize>]) -> Result<(), SpecError> {
    let mut waiting: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut waited_for_by: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (index, needed) in needs.iter().enumerate() {
        needed.iter().for_each(|other| waited_for_by[*other].push(index));
    }
    let mut free: Vec<usize> = (0..needs.len()).filter(|index| waiting[*index] == 0).collect();
    while let Some(index) = free.pop() {
        for other in &waited_for_by[index] {
            waiting[*other] -= 1;
            if waiting[*other] == 0 {
                free.push(*other);
            }
        }
    }
    let Some(start) = waiting.iter().position(|count| *count > 0) else { return Ok(()) };
    let mut walked = vec![start];
    let mut here = start;
    while let Some(next) = needs[here].iter().copied().find(|other| waiting[*other] > 0) {
        if let Some(first) = walked.iter().position(|index| *index == next) {
            walked.drain(..first);
            walked.push(next);
            break;
        }
        walked.push(next);
        here = next;
    }
    let names: Vec<&str> = walked.iter().map(|index| submissions[*index].spec.name.as_str()).collect();
    let problem = format!("jobs wait for each other in a circle: {}", names.join(" → "));
    Err(SpecError { path: "after".to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::spec::JobSpec;
    use super::*;

    fn batch(jobs: &[(&str, &[&str])]) -> Result<Vec<Vec<String>>, SpecError> {
        let one = |(name, after): &(&str, &[&str])| Submission {
            spec: JobSpec::read(json!({"command": ["true"], "name": name, "after": after})).expect("valid"),
            owner: "o".to_owned(),
        };
        let submissions: Vec<Submission> = jobs.iter().map(one).collect();
        let ids: Vec<String> = (0..jobs.len()).map(|index| format!("id{index}")).collect();
        resolve_names(&submissions, &ids)
    }

    #[test]
    fn names_of_a_batch_become_ids() {
        let resolved = batch(&[("c", &["a", "b", "0123456789ab"]), ("a", &[]), ("b", &["a"])]);
        let resolved = resolved.expect("resolved");
        assert_eq!(resolved, [vec!["id1", "id2", "0123456789ab"], vec![], vec!["id1"]]);
        // Names that no job waits for may be there twice.
        assert!(batch(&[("a", &[]), ("a", &[]), ("b", &["0123456789ab"])]).is_ok());
    }

    #[test]
    fn circles_and_ambiguous_names_are_refused() {
        let circle =
            batch(&[("x", &["a"]), ("a", &["b"]), ("b", &["c"]), ("c", &["a"])]).expect_err("a circle");
        assert_eq!(circle.path, "after");
        assert!(circle.problem.ends_with("a → b → c → a"), "{circle}");
        assert!(batch(&[("a", &["a"])]).expect_err("itself").problem.ends_with("a → a"));
        let twice = batch(&[("a", &[]), ("a", &[]), ("b", &["a"])]).expect_err("ambiguous");
        assert!(twice.path == "after[0]" && twice.problem.contains("2 jobs"), "{twice}");
    }

    #[test]
    fn waits_are_counted_once_and_bounded() {
        assert_eq!(
            batch(&[("a", &[]), ("b", &["a", "a", "x", "a", "x"])]).expect("resolved")[1],
            ["id0", "x"]
        );
        let names: Vec<String> = (0..150).map(|number| number.to_string()).collect();
        let after: Vec<&str> = names.iter().map(String::as_str).collect();
        let jobs: Vec<(&str, &[&str])> = after.iter().map(|name| (*name, &after[..])).collect();
        let refused = batch(&jobs).expect_err("22,500 waits");
        assert!(refused.path == "after" && refused.problem.contains("at most 20000"), "{refused}");
    }
}
