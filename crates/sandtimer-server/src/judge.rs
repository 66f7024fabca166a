//! `POST /v1/judge`: a program is run on cases, each in a run of its own, and its answers are
//! compared here. What is expected never enters a run.
//!
//! ```text
//! request   the fields of a request, checked before anything runs
//! verdict   what an Outcome and the expected output amount to
//! compare   the rule by which outputs are the same
//! shortened how much of an Outcome is in the answer
//! ```
//! States of a case: waiting | under way | run, with an Outcome | judged. Cases are started in
//! their order, some at a time, and judged in their order: those under way after a stop are
//! cancelled and count as not run, so that the answer does not depend on which of them happened to
//! be quick. A case that the server cannot run is an `infra_error` of its own, unless it is the
//! first: then the request is refused, with the reason. The limit of all cases is that of a scope,
//! in which all runs are, and cases wait for their turn as long as that allows.
//!
//! Python is compiled before the cases, in a run of its own that executes none of it.

mod compare;
mod outcome_excerpt;
mod request;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use sandtimer::Limits;
use sandtimer::engine::ScopeHandle;
use sandtimer::model::{Layer, Outcome};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde::Serialize;

use crate::auth::OwnerId;
use crate::body::{self, MayBeLong, Object};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::programs::{self, ProgramResult, ProgramService, ProgramSpec, StageEnd, StageLimits, language};

use request::{JudgeCase, JudgeRequest};
use verdict::CaseVerdict;

pub(crate) use request::{LIMITS, MAX_CASES};
pub(crate) use verdict::VERDICTS;

/// Cases that run, or wait for their turn, for each processor.
const MAX_IN_FLIGHT_PER_PROCESSOR: usize = 2;
/// How long after the limit of all cases a run that has ended by it is waited for.
const TOTAL_GRACE: Duration = Duration::from_secs(5);
/// Bytes of a compiler's message in the answer.
const MAX_MESSAGE: usize = 16 << 10;

pub(crate) fn routes() -> Router<Arc<ProgramService>> {
    Router::new().route("/v1/judge", post(judge))
}

/// Compiles the program that is its stdin, and executes nothing of it.
const PYTHON_CHECK: &str = "import sys, traceback
try:
    compile(sys.stdin.buffer.read(), 'main.py', 'exec', dont_inherit=True)
except BaseException as error:
    sys.exit(''.join(traceback.format_exception_only(type(error), error)))
";

/// One case in the answer.
#[derive(Debug, Serialize)]
struct JudgedCase {
    verdict: CaseVerdict,
    score: f64,
    run_id: Option<String>,
    /// Why there is no Outcome.
    error: Option<String>,
    outcome: Option<Outcome>,
}

impl JudgedCase {
    fn without_outcome(verdict: CaseVerdict, error: Option<String>) -> Self {
        JudgedCase { verdict, score: 0.0, run_id: None, error, outcome: None }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
struct Judgement {
    passed: bool,
    score: f64,
    /// What the compiler printed, if the program does not compile.
    error: Option<String>,
    cases: Vec<JudgedCase>,
}

impl MayBeLong for &Judgement {
    fn may_be_long(&self) -> bool {
        true
    }
}

async fn judge(
    State(service): State<Arc<ProgramService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    let mut request = JudgeRequest::parse(fields)?;
    request.check_installed(&service).await?;
    let scope = match request.total {
        Some(total) => {
            let limits = Limits::new().wall(total);
            Some(service.runs.core.engine.open_scope(
                service.runs.core.tenants.scope(&owner),
                Layer::Call,
                "judge",
                &limits,
            )?)
        }
        None => None,
    };
    request.program.scope = scope.as_ref().map(ScopeHandle::id);
    let judging = JudgeExecution {
        service: &service,
        owner: &owner,
        request: &request,
        begun_ns: monotonic_nanoseconds(),
    };
    let judgement = programs::attended(&connection, judging.judge()).await?;
    let answer =
        body::long_json(&service.runs.core.messages, &owner, || std::future::ready(Ok(&judgement))).await;
    answer.map_err(|rejection: ApiRejection| {
        let runs: Vec<&str> = judgement.cases.iter().filter_map(|case| case.run_id.as_deref()).collect();
        rejection.after_execution(None).with("run_ids", runs)
    })
}

/// A program and its cases on their way to a judgement.
struct JudgeExecution<'a> {
    service: &'a Arc<ProgramService>,
    owner: &'a OwnerId,
    request: &'a JudgeRequest,
    /// From then on the limit of all cases counts.
    begun_ns: u64,
}

impl JudgeExecution<'_> {
    async fn judge(&self) -> Result<Judgement, ApiRejection> {
        let mut cases = Vec::with_capacity(self.request.cases.len());
        let error = match self.check().await? {
            None => self.judge_cases(&mut cases).await?,
            error => error,
        };
        let rest = if error.is_some() { CaseVerdict::CompileError } else { CaseVerdict::NotRun };
        cases.resize_with(self.request.cases.len(), || JudgedCase::without_outcome(rest, None));
        let sum: f64 = cases.iter().map(|case| case.score).sum();
        Ok(Judgement {
            passed: cases.iter().all(|case| case.verdict == CaseVerdict::Accepted),
            score: sum / cases.len() as f64,
            error,
            cases,
        })
    }

    /// Compiles Python, whose interpreter has no step for that. Why it does not compile.
    async fn check(&self) -> Result<Option<String>, ApiRejection> {
        let program = &self.request.program;
        if program.language != &language::PYTHON {
            return Ok(None);
        }
        let check = ProgramSpec {
            stdin: Some(program.source.to_vec()),
            run: program.compile.clone(),
            scope: program.scope,
            ..ProgramSpec::new(&language::PYTHON, PYTHON_CHECK)
        };
        let Some(run) = self.execute(check).await?.and_then(|executed| executed.run) else { return Ok(None) };
        let report = programs::report(&run).await?;
        Ok(match (&report.end, &report.sentence) {
            (StageEnd::Exited(0), _) => None,
            (StageEnd::Failed, sentence) => {
                let why = sentence.clone().unwrap_or_else(|| "the program cannot be compiled".to_owned());
                return Err(ApiRejection::new(Code::Internal, why));
            }
            // At the limit of all cases, none of which is run then.
            (_, Some(_)) if self.left() == Some(Duration::ZERO) => None,
            (_, Some(sentence)) => Some(format!("It could not be compiled. {sentence}")),
            (_, None) => Some(shortened_message(report.stderr_lossy())),
        })
    }

    /// Judges the cases up to a stop. What the compiler printed, if the program does not compile.
    async fn judge_cases(&self, judged: &mut Vec<JudgedCase>) -> Result<Option<String>, ApiRejection> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let cases: Vec<BoxFuture<'_, Result<CaseEnd, ApiRejection>>> =
            self.request.cases.iter().map(|case| self.run(case).boxed()).collect();
        // Dropped, it cancels what is under way.
        let mut ended = stream::iter(cases).buffered(processors * MAX_IN_FLIGHT_PER_PROCESSOR);
        while let Some(ended) = ended.next().await {
            let case = match ended {
                Ok(CaseEnd::Judged(case)) => *case,
                Ok(CaseEnd::NotCompiled(message)) => return Ok(Some(message)),
                Err(_) if self.left() == Some(Duration::ZERO) => {
                    JudgedCase::without_outcome(CaseVerdict::NotRun, None)
                }
                Err(rejection) if judged.is_empty() => return Err(rejection),
                Err(rejection) => {
                    JudgedCase::without_outcome(CaseVerdict::InfraError, Some(rejection.message))
                }
            };
            let stops = self.request.stops_early && case.verdict.stops_early();
            judged.push(case);
            if stops {
                break;
            }
        }
        Ok(None)
    }

    /// What is left of the limit of all cases, if there is one.
    fn left(&self) -> Option<Duration> {
        let elapsed = Duration::from_nanos(monotonic_nanoseconds() - self.begun_ns);
        self.request.total.map(|total| total.saturating_sub(elapsed))
    }

    /// Executes a program when its turn comes; `None` if the limit of all cases comes first.
    async fn execute(&self, program: ProgramSpec) -> Result<Option<ProgramResult>, ApiRejection> {
        let executed = programs::execute_queued(self.service, self.owner, program, &|| ());
        match self.left() {
            Some(Duration::ZERO) => Ok(None),
            // The scope ends the run; dropped, what still waits for its turn is not run.
            Some(left) => tokio::time::timeout(left + TOTAL_GRACE, executed).await.ok().transpose(),
            None => executed.await.map(Some),
        }
    }

    async fn run(&self, case: &JudgeCase) -> Result<CaseEnd, ApiRejection> {
        let program = ProgramSpec {
            stdin: Some(case.stdin.clone()),
            run: StageLimits { limits: self.request.limits.clone(), ..StageLimits::default() },
            ..self.request.program.clone()
        };
        let Some(executed) = self.execute(program).await? else {
            return Ok(CaseEnd::Judged(Box::new(JudgedCase::without_outcome(CaseVerdict::NotRun, None))));
        };
        let Some(run) = executed.run else {
            let message = executed.compile.map_or_else(String::new, |report| report.stderr_lossy());
            return Ok(CaseEnd::NotCompiled(shortened_message(message)));
        };
        let missing = || ApiRejection::new(Code::Internal, "the run has no outcome");
        let outcome = run.outcome().await?.ok_or_else(missing)?;
        let max_bytes = self.request.max_stream_bytes();
        let judged = tokio::task::block_in_place(|| {
            let verdict = verdict::of(&outcome, &case.expected);
            JudgedCase {
                verdict,
                score: f64::from(u8::from(verdict == CaseVerdict::Accepted)),
                run_id: Some(run.id_str().to_owned()),
                error: None,
                outcome: Some(outcome_excerpt::shortened(&outcome, max_bytes)),
            }
        });
        Ok(CaseEnd::Judged(Box::new(judged)))
    }
}

fn shortened_message(mut message: String) -> String {
    message.truncate(outcome_excerpt::start_of_character(&message, MAX_MESSAGE));
    message
}

/// How a case ended.
enum CaseEnd {
    Judged(Box<JudgedCase>),
    /// With what the compiler printed.
    NotCompiled(String),
}
