//! How much an owner may have at once, where the token file says so.
//!
//! A place is held by what it was taken for, and is free again when that has ended.

use std::collections::HashMap;
use std::sync::Arc;

use sandtimer::limits::{Format, Setting, Unit, Zero, parse_text};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::{Owner, Tokens};
use crate::error::{Code, Refusal};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Runs of their own; what is executed in contexts is not counted.
    Runs,
    Contexts,
    Sessions,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Runs, Kind::Contexts, Kind::Sessions];

    fn name(self) -> &'static str {
        match self {
            Kind::Runs => "runs",
            Kind::Contexts => "contexts",
            Kind::Sessions => "sessions",
        }
    }
}

/// The quotas of one token.
pub(crate) type Quotas = HashMap<Kind, usize>;

/// Reads `runs=3`. `None` where it is no quota.
pub(crate) fn read(word: &str) -> Option<(Kind, Option<usize>)> {
    let (name, value) = word.split_once('=')?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let format = Format { unit: Unit::Count, zero: Zero::Unlimited, least: 0, whole: true };
    match parse_text(name, format, value, "the token file").ok()? {
        Setting::At(most) => Some((kind, Some(usize::try_from(most).ok()?.min(Semaphore::MAX_PERMITS)))),
        _ => Some((kind, None)),
    }
}

/// A place under a quota. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Taken {
    _held: Option<OwnedSemaphorePermit>,
}

/// All quotas there are.
#[derive(Debug, Default)]
pub(crate) struct Places(HashMap<(Owner, Kind), (usize, Arc<Semaphore>)>);

impl Places {
    pub fn of(tokens: Option<&Tokens>) -> Self {
        let mut places = HashMap::new();
        for (owner, quotas) in tokens.into_iter().flat_map(Tokens::quotas) {
            for (kind, most) in quotas {
                places.insert((owner.clone(), *kind), (*most, Arc::new(Semaphore::new(*most))));
            }
        }
        Places(places)
    }

    /// A place for one more.
    pub fn take(&self, owner: &Owner, kind: Kind) -> Result<Taken, Refusal> {
        let Some((most, places)) = self.0.get(&(owner.clone(), kind)) else {
            return Ok(Taken { _held: None });
        };
        let name = kind.name();
        let taken = places.clone().try_acquire_owned().map_err(|_| {
            Refusal::new(Code::Quota, format!("this token may have {most} {name} at once, and has them"))
                .with("quota", name)
                .with("limit", *most)
        })?;
        Ok(Taken { _held: Some(taken) })
    }
}
