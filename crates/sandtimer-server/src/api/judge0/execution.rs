//! Taking a submission in, and executing it.

use std::sync::Arc;

use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;
use sandtimer::time::instant;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use super::request::{SubmissionRequest, split_options};
use super::submission::{LiveSubmission, Submission, attribute, encoded};
use super::verdict;
use crate::api::service::FrontDoorService;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, storage};
use crate::programs::{self, ProgramSpec, StageEnd, StageLimits, StageReport};
use crate::registry::OwnedResource;

fn now() -> Value {
    instant(calendar_milliseconds()).into()
}

/// Returns a random token in the form of a UUID.
fn new_token() -> String {
    let (first, second) = (crate::id::new_id(), crate::id::new_id());
    let variant = ["8", "9", "a", "b"][usize::from(second.as_bytes()[0]) % 4];
    format!("{}-{}-4{}-{variant}{}-{}", &first[..8], &first[8..12], &first[13..], &second[1..4], &second[4..])
}

/// Takes a submission in, which is executed when its turn comes.
pub(super) fn submit(
    service: &FrontDoorService,
    owner: &OwnerId,
    request: SubmissionRequest,
) -> Result<Submission, ApiRejection> {
    let others = [&request.stdin, &request.expected_output].into_iter().flatten();
    let bytes = request.source.len() + others.map(Vec::len).sum::<usize>();
    let memory = service.programs.runs.core.messages.requests.reserve_long(owner, bytes)?;
    let token = new_token();
    let live = LiveSubmission::new(token.clone(), owner.clone(), memory);
    live.set(json!({
        "token": token,
        "source_code": encoded(&request.source),
        "stdin": request.stdin.as_deref().map(encoded),
        "expected_output": request.expected_output.as_deref().map(encoded),
        "language_id": request.language_id,
        "created_at": now(),
        "compiler_options": request.compiler_options,
        "command_line_arguments": request.arguments,
        "redirect_stderr_to_stdout": request.redirects_stderr,
        "enable_network": request.network,
        "enable_per_process_and_thread_time_limit": false,
        "enable_per_process_and_thread_memory_limit": false,
    }));
    live.set(Value::Object(request.numbers.clone()));
    let added = tokio::task::block_in_place(|| service.submissions.add(live.clone()));
    added.map_err(|error| storage("the submission cannot be recorded", &error))?;
    tokio::spawn(execute(service.clone(), live.clone(), request));
    Ok(Submission::live(live))
}

/// Executes a submission and records how it ended.
async fn execute(service: FrontDoorService, live: Arc<LiveSubmission>, request: SubmissionRequest) {
    let attributes = execute_all(&service, &live, &request).await.unwrap_or_else(|rejection| {
        json!({"status_id": verdict::INTERNAL_ERROR, "message": encoded(rejection.message.as_bytes())})
    });
    live.set(attributes);
    live.set(json!({"finished_at": now()}));
    if let Err(error) = tokio::task::block_in_place(|| service.submissions.end(&live)) {
        (service.programs.runs.core.host.log_error)(&format!(
            "the record of a submission is kept in memory only: {error}"
        ));
    }
    live.finish();
}

/// What it used, of each of its runs.
#[derive(Debug, Default)]
struct ResourceUse {
    runs: f64,
    cpu: f64,
    wall: f64,
    memory: f64,
}

/// Executes a program as often as it asks for, while it is accepted. Each time it waits for its
/// turn.
async fn execute_all(
    service: &FrontDoorService,
    live: &LiveSubmission,
    request: &SubmissionRequest,
) -> Result<Value, ApiRejection> {
    let mut used = ResourceUse::default();
    let note = || live.set(json!({"status_id": verdict::PROCESSING}));
    loop {
        let executed =
            programs::execute_queued(&service.programs, live.owner(), program(request), &note).await?;
        let compile = executed.compile.as_ref();
        let Some(run) = &executed.run else { return Ok(not_compiled(compile)) };
        let report = StageReport::clone(&*programs::report(run).await?);
        used.runs += 1.0;
        used.cpu += report.cpu_ms as f64 / 1_000.0;
        used.wall += report.wall_ms as f64 / 1_000.0;
        used.memory += (report.memory_bytes / 1024) as f64;
        let in_force = run.effective()["cpu_ms"]["limit"].as_f64();
        let limit =
            cpu_limit_ms(in_force, request.number("cpu_time_limit"), request.number("cpu_extra_time"));
        let verdict = verdict::of(&report, limit, request.expected_output.as_deref());
        if verdict.status != verdict::ACCEPTED || used.runs >= request.number("number_of_runs") {
            let output = compile.map(compiler_output).unwrap_or_default();
            return Ok(json!({
                "status_id": verdict.status,
                "message": verdict.message.map(|message| encoded(message.as_bytes())),
                "exit_code": verdict.exit_code,
                "exit_signal": verdict.exit_signal,
                "stdout": attribute(&report.stdout),
                "stderr": attribute(&report.stderr),
                "compile_output": attribute(&output),
                "time": used.cpu / used.runs,
                "wall_time": used.wall / used.runs,
                "memory": (used.memory / used.runs).round() as u64,
            }));
        }
    }
}

/// The processor time that a program may use, in milliseconds, by the limit that is in force and
/// those of the request in seconds: without the extra time, if that is in the limit.
fn cpu_limit_ms(in_force_ms: Option<f64>, limit: f64, extra: f64) -> Option<u64> {
    let in_force = in_force_ms.filter(|in_force| *in_force > 0.0)?;
    // A difference by rounding is not another limit.
    let is_of_another = limit <= 0.0 || in_force > (limit + extra) * 1e3 + 1.0;
    Some(if is_of_another { in_force } else { limit * 1e3 } as u64)
}

fn compiler_output(report: &StageReport) -> Vec<u8> {
    [&report.stdout[..], &report.stderr].concat()
}

/// What is recorded of a program that did not compile.
fn not_compiled(report: Option<&StageReport>) -> Value {
    let output = match report {
        Some(report) if report.end == StageEnd::TimeLimit => {
            let reason = report.sentence.as_deref().unwrap_or_default();
            format!("Compilation time limit exceeded. {reason}").trim_end().as_bytes().to_vec()
        }
        Some(report) => {
            let mut output = compiler_output(report);
            output.extend(report.sentence.as_deref().unwrap_or_default().bytes());
            output
        }
        None => Vec::new(),
    };
    json!({"status_id": verdict::COMPILATION_ERROR, "compile_output": attribute(&output)})
}

fn program(request: &SubmissionRequest) -> ProgramSpec {
    let (mut chosen, mut usual) = (request.chosen.clone(), request.usual.clone());
    // The extra time is within the limit of the run; the verdict checks how much of it was used.
    for limits in [&mut chosen, &mut usual] {
        if let Setting::At(nanoseconds) = limits.get(LimitKind::Cpu) {
            let extra = (request.number("cpu_extra_time") * 1e9) as u64;
            limits.set(LimitKind::Cpu, Setting::At(nanoseconds + extra));
        }
    }
    let compile = StageLimits { defaults: compile_limits(), ..StageLimits::default() };
    let stack = request.numbers.get("stack_limit").and_then(Value::as_f64);
    ProgramSpec {
        stdin: request.stdin.clone().or(Some(Vec::new())),
        arguments: request.arguments.as_deref().map(split_options).unwrap_or_default(),
        compiler_options: request.compiler_options.as_deref().map(split_options).unwrap_or_default(),
        network: request.network,
        joins_streams: request.redirects_stderr,
        stack_kibibytes: stack.filter(|stack| *stack > 0.0).map(|stack| stack as u64),
        compile,
        run: StageLimits { limits: chosen, defaults: usual, ends_at_output_limit: true },
        ..ProgramSpec::new(request.language.language, request.source.clone())
    }
}

/// The limits of compilers, which are Judge0's maxima.
fn compile_limits() -> sandtimer::Limits {
    let seconds = std::time::Duration::from_secs;
    sandtimer::Limits::new().cpu(seconds(15)).wall(seconds(20)).memory(512_000 << 10).processes(120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_limit_is_the_one_in_force_without_extra_time() {
        // Those of the request or of Judge0, also under a ceiling.
        assert_eq!(cpu_limit_ms(Some(6_000.0), 5.0, 1.0), Some(5_000));
        assert_eq!(cpu_limit_ms(Some(15_000.0), 15.0, 5.0), Some(15_000));
        // The operator's default in place of Judge0's, and a ceiling without another limit.
        assert_eq!(cpu_limit_ms(Some(30_000.0), 5.0, 1.0), Some(30_000));
        assert_eq!(cpu_limit_ms(Some(30_000.0), 0.0, 1.0), Some(30_000));
        assert_eq!((cpu_limit_ms(None, 5.0, 1.0), cpu_limit_ms(Some(0.0), 5.0, 1.0)), (None, None));
    }

    #[test]
    fn tokens_are_uuids() {
        let token = new_token();
        let lengths: Vec<usize> = token.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{token}");
        assert_ne!(token, new_token());
    }
}
