//! Honest runs beside an attack: their output must not change by a byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::command::{RunInvocation, read_outcome};

const WORK: &str = "seq 1 20000 | sha256sum";
/// What `WORK` prints.
const ANSWER: &str = "f6351f5ead9a700e34275480b3856ea738122a7c57bdeb744a631251c069587a  -\n";

/// Honest runs, over and over, until [`Company::leave`].
#[derive(Debug)]
pub struct Company {
    over: Arc<AtomicBool>,
    members: Vec<JoinHandle<Result<usize, String>>>,
}

impl Company {
    /// Starts `size` of them.
    #[must_use]
    pub fn of(size: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let member = |_| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut done = 0;
                while !over.load(Ordering::Relaxed) {
                    honest_run()?;
                    done += 1;
                }
                Ok(done)
            })
        };
        let members = (0..size).map(member).collect();
        Company { over, members }
    }

    /// Ends them after the run each is at.
    ///
    /// # Errors
    /// The first run that was not as it should be, or that none was made.
    pub fn leave(self) -> Result<usize, String> {
        self.over.store(true, Ordering::Relaxed);
        let mut done = 0;
        for member in self.members {
            done += member.join().map_err(|_| "an honest run's thread panicked")??;
        }
        if done == 0 { Err("no honest run was made".into()) } else { Ok(done) }
    }
}

/// One honest run.
///
/// # Errors
/// How it differed from what it should be.
pub fn honest_run() -> Result<(), String> {
    let mut run = RunInvocation::new().flags(&["--json", "--wall", "60s"]).command(&["/bin/sh", "-c", WORK]);
    run.hard_stop = Duration::from_secs(90);
    let (outcome, _) = read_outcome(run.finish())?;
    if outcome.ending() != "exited" || !outcome.ok() || outcome.stdout() != ANSWER {
        return Err(format!("an honest run was not as it should be: {}", outcome.0));
    }
    Ok(())
}
