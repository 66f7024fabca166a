//! `POST /v1/judge`: a program is run on cases, each in a run of its own, and its answers are compared here. What is expected
//! never enters a run.
//!
//! ```text
//! request   the fields of a request, checked before anything runs
//! verdict   what an Outcome and the expected output amount to
//! compare   the rule by which outputs are the same
//! kept      how much of an Outcome is in the answer
//! ```
//! States of a case: waiting | under way | run, with an Outcome | judged. Cases are started in their order, some at a time, and
//! judged in their order: those under way after a stop are cancelled and count as not run, so that the answer does not depend
//! on which of them happened to be quick. A case that the server cannot run is an `infra_error` of its own, unless it is the
//! first: then the request is refused, with the reason.

mod compare;
mod kept;
mod request;
mod verdict;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use sandtimer::limits::Setting;
use sandtimer::model::{LimitKind, Outcome};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde::Serialize;

use crate::Shared;
use crate::auth::Owner;
use crate::body::{self, MayBeLong, Object};
use crate::connection::Connection;
use crate::error::{Code, Refusal};
use crate::programs::{self, Program, StageLimits};

use request::{Case, JudgeRequest};
use verdict::Verdict;

pub(crate) use request::{LIMITS, MAX_CASES};
pub(crate) use verdict::VERDICTS;

/// Cases of a program that are under way for each processor: run, or next to be.
const UNDER_WAY_PER_PROCESSOR: usize = 2;
/// How long after the limit of all cases those under way, which end by it too, are waited for.
const TOTAL_GRACE: Duration = Duration::from_secs(2);
/// Bytes of a compiler's message in the answer.
const MAX_MESSAGE: usize = 16 << 10;

pub(crate) fn routes() -> Router<Shared> {
    Router::new().route("/v1/judge", post(judge))
}

/// One case in the answer.
#[derive(Debug, Serialize)]
struct JudgedCase {
    verdict: Verdict,
    score: f64,
    run_id: Option<String>,
    /// Why there is no Outcome.
    error: Option<String>,
    outcome: Option<Outcome>,
}

impl JudgedCase {
    fn without_outcome(verdict: Verdict, error: Option<String>) -> Self {
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
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Extension(connection): Extension<Arc<Connection>>,
    Object(fields): Object,
) -> Result<Response, Refusal> {
    let request = JudgeRequest::parse(fields)?;
    request.check_installed(&app).await?;
    let judging = Judging { app: &app, owner: &owner, request: &request, first_ns: OnceLock::new() };
    let judgement = programs::attended(&connection, judging.judge()).await?;
    let answer = body::long_json(&app, &owner, || std::future::ready(Ok(&judgement))).await;
    answer.map_err(|refusal: Refusal| refusal.after_execution(None))
}

/// A program and its cases on their way to a judgement.
struct Judging<'a> {
    app: &'a Shared,
    owner: &'a Owner,
    request: &'a JudgeRequest,
    /// When the first case began to wait: from then on the limit of all cases counts.
    first_ns: OnceLock<u64>,
}

impl Judging<'_> {
    async fn judge(&self) -> Result<Judgement, Refusal> {
        let mut cases = Vec::with_capacity(self.request.cases.len());
        let judged = self.judge_cases(&mut cases);
        let error = match self.request.total {
            // Dropped, it cancels what is under way.
            Some(total) => tokio::time::timeout(total + TOTAL_GRACE, judged).await.unwrap_or(Ok(None))?,
            None => judged.await?,
        };
        let rest = if error.is_some() { Verdict::CompileError } else { Verdict::NotRun };
        cases.resize_with(self.request.cases.len(), || JudgedCase::without_outcome(rest, None));
        let sum: f64 = cases.iter().map(|case| case.score).sum();
        Ok(Judgement {
            passed: cases.iter().all(|case| case.verdict == Verdict::Accepted),
            score: sum / cases.len() as f64,
            error,
            cases,
        })
    }

    /// Judges the cases up to a stop. What the compiler printed, if the program does not compile.
    async fn judge_cases(&self, judged: &mut Vec<JudgedCase>) -> Result<Option<String>, Refusal> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let cases: Vec<BoxFuture<'_, Result<CaseEnd, Refusal>>> =
            self.request.cases.iter().map(|case| self.run(case).boxed()).collect();
        let mut ended = stream::iter(cases).buffered(processors * UNDER_WAY_PER_PROCESSOR);
        while let Some(ended) = ended.next().await {
            let case = match ended {
                Ok(CaseEnd::Judged(case)) => *case,
                Ok(CaseEnd::NotCompiled(message)) => return Ok(Some(message)),
                Err(refusal) if judged.is_empty() => return Err(refusal),
                Err(refusal) => JudgedCase::without_outcome(Verdict::InfraError, Some(refusal.message)),
            };
            let is_last = self.request.stops_early && !case.verdict.is_passed();
            judged.push(case);
            if is_last {
                break;
            }
        }
        Ok(None)
    }

    async fn run(&self, case: &Case) -> Result<CaseEnd, Refusal> {
        let first_ns = *self.first_ns.get_or_init(monotonic_nanoseconds);
        let mut limits = self.request.limits.clone();
        if let Some(total) = self.request.total {
            let left = (total.as_nanos() as u64).saturating_sub(monotonic_nanoseconds() - first_ns);
            if left == 0 {
                return Ok(CaseEnd::Judged(Box::new(JudgedCase::without_outcome(Verdict::NotRun, None))));
            }
            let is_shorter = !matches!(limits.get(LimitKind::Wall), Setting::At(wall) if wall < left);
            if is_shorter {
                limits.set(LimitKind::Wall, Setting::At(left));
            }
        }
        let program = Program {
            stdin: Some(case.stdin.clone()),
            run: StageLimits { limits, ..StageLimits::default() },
            ..self.request.program.clone()
        };
        let executed = programs::execute(self.app, self.owner, program).await?;
        let Some(run) = executed.run else {
            let mut message = executed.compile.map_or_else(String::new, |report| report.stderr_text());
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
            return Ok(CaseEnd::NotCompiled(message));
        };
        let missing = || Refusal::new(Code::Internal, "the run has no outcome");
        let outcome = run.outcome().await?.ok_or_else(missing)?;
        let most = self.request.kept_bytes();
        let judged = tokio::task::block_in_place(|| {
            let verdict = verdict::of(&outcome, &case.expected);
            JudgedCase {
                verdict,
                score: f64::from(u8::from(verdict == Verdict::Accepted)),
                run_id: Some(run.id_text().to_owned()),
                error: None,
                outcome: Some(kept::shortened(&outcome, most)),
            }
        });
        Ok(CaseEnd::Judged(Box::new(judged)))
    }
}

/// How a case ended.
enum CaseEnd {
    Judged(Box<JudgedCase>),
    /// With what the compiler printed.
    NotCompiled(String),
}
