//! One limit that one place sets.

use sandtimer::limits::{Limits, Setting};
use sandtimer::model::Source;

use super::names::{Name, Uses};

/// One limit that one place sets; the limits know the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LayeredLimits {
    pub(super) source: Source,
    pub(super) uses: Uses,
    pub(super) limits: Limits,
}

impl LayeredLimits {
    pub(super) fn one(name: &Name, setting: Setting, source: Source, origin: &str) -> Self {
        let mut limits = Limits::new().with_origin(origin);
        limits.set(name.key, setting);
        LayeredLimits { source, uses: name.uses, limits }
    }
}
