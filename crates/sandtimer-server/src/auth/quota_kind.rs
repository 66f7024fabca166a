//! The quotas of a token, as its line has them.

use std::collections::HashMap;

use sandtimer::limits::{Format, Setting, Unit, Zero, parse_string};
use tokio::sync::Semaphore;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QuotaKind {
    /// Runs of their own; what is executed in contexts is not counted, nor what jobs begin: those
    /// wait for a slot.
    Runs,
    Contexts,
    Sessions,
}

impl QuotaKind {
    const ALL: [QuotaKind; 3] = [QuotaKind::Runs, QuotaKind::Contexts, QuotaKind::Sessions];

    pub fn name(self) -> &'static str {
        match self {
            QuotaKind::Runs => "runs",
            QuotaKind::Contexts => "contexts",
            QuotaKind::Sessions => "sessions",
        }
    }
}

/// The quotas of one token.
pub(crate) type Quotas = HashMap<QuotaKind, usize>;

/// Reads `runs=3`. `None` if it is not a quota.
pub(crate) fn read(quota_option: &str) -> Option<(QuotaKind, Option<usize>)> {
    let (name, value) = quota_option.split_once('=')?;
    let kind = QuotaKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let format = Format { unit: Unit::Count, zero: Zero::Unlimited, least: 0, whole: true };
    match parse_string(name, format, value, "the token file").ok()? {
        Setting::At(most) => Some((kind, Some(usize::try_from(most).ok()?.min(Semaphore::MAX_PERMITS)))),
        _ => Some((kind, None)),
    }
}
