//! The steps of a job, and an order in which each comes after what it needs.

use super::error::SpecError;
use super::table::nearest;
use super::ways::Action;

/// One step of a job.
#[derive(Debug, Clone)]
pub struct StepSpec {
    /// The name, unique in the job.
    pub name: String,
    /// The names of the steps that must have succeeded before it starts.
    pub needs: Vec<String>,
    /// The call that it makes.
    pub action: Action,
}

/// The steps in order; among those that could come next, the one that is written first.
///
/// # Errors
/// A name that is there twice, a need that is no step, and a circle, which is spelled out.
pub(super) fn sort_steps(steps: Vec<StepSpec>) -> Result<Vec<StepSpec>, SpecError> {
    let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
    for (index, step) in steps.iter().enumerate() {
        let refused = |field: &str, problem| SpecError { path: format!("steps[{index}].{field}"), problem };
        if names[..index].contains(&step.name) {
            return Err(refused(
                "name",
                format!("`{}` is the name of an earlier step; use another", step.name),
            ));
        }
        for need in &step.needs {
            if !names.contains(need) {
                let near = nearest(need, names.iter().map(String::as_str)).unwrap_or_default();
                return Err(refused("needs", format!("`{need}` is not a step; the nearest one is `{near}`")));
            }
        }
    }
    let mut left: Vec<StepSpec> = steps;
    let mut ordered: Vec<StepSpec> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_done = |need: &String| ordered.iter().any(|step| step.name == *need);
        match left.iter().position(|step| step.needs.iter().all(is_done)) {
            Some(next) => ordered.push(left.remove(next)),
            None => {
                let problem = format!("they need each other in a circle: {}", circle(&left));
                return Err(SpecError { path: "steps".to_owned(), problem });
            }
        }
    }
    Ok(ordered)
}

/// Among steps of which each needs another one of them: one way around.
fn circle(left: &[StepSpec]) -> String {
    let mut walked = vec![left[0].name.as_str()];
    loop {
        let here = walked[walked.len() - 1];
        let step = left.iter().find(|step| step.name == here);
        let next =
            step.and_then(|step| step.needs.iter().find(|need| left.iter().any(|step| step.name == **need)));
        let Some(next) = next else { return walked.join(" → ") };
        if let Some(start) = walked.iter().position(|name| name == next) {
            walked.drain(..start);
            walked.push(next);
            return walked.join(" → ");
        }
        walked.push(next);
    }
}
