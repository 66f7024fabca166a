//! The `sandtimer.toml` of the current directory: it bounds what applies without it, and is refused where it would not.

use std::path::Path;

use sandtimer::limits::{Effective, Limits, Setting};

use super::{Contexts, Failure, NAMES, Uses, file, written};

/// What the file says, as bounds.
pub(super) fn bounds(found: &file::Found) -> Result<Limits, Failure> {
    let parsed = file::parse(found)?;
    if parsed.maxima != Limits::new() {
        return Err(Failure::usage(format!(
            "{}: [max] is read only from your own file and the machine's; put bounds for this directory into [limits]",
            found.path.display()
        )));
    }
    let of_code = |layer: &super::Layered| matches!(layer.uses, Uses::Code | Uses::JavaScript);
    if parsed.contexts != Contexts::default() || parsed.layers.iter().any(of_code) {
        return Err(Failure::usage(format!(
            "{}: the settings of a server's contexts are read only from your own file and the machine's",
            found.path.display()
        )));
    }
    Ok(parsed.limits())
}

/// Refuses the first bound that is looser than what applies without it.
pub(super) fn check(path: &Path, bounds: &Limits, without: &Effective) -> Result<(), Failure> {
    for name in NAMES {
        let wanted = match bounds.get(name.key) {
            Setting::Inherit => continue,
            Setting::Unlimited => None,
            Setting::At(value) => Some(value),
        };
        let Some(applies) = without.get(name.key).map(|effect| effect.value) else { continue };
        if wanted.is_none_or(|wanted| wanted > applies) {
            let applies = written(name.key, Some(applies));
            return Err(Failure::usage(format!(
                "{}: {} = `{}` would loosen what applies without this file, which is {applies}; use {applies} or less, or \
                 remove the key",
                path.display(),
                name.file,
                written(name.key, wanted),
            )));
        }
    }
    Ok(())
}
