//! A script for the shells of sessions, and its result.

use std::sync::{Arc, OnceLock};

use super::shell_handle::OWN;
use crate::zygote::Prewarm;

/// Follows the script: whether its end was reached, which an unreadable script does not; and the
/// state that is restored in a shell that replaces one that ended. The variables apart: of those
/// that are exported the last values count. Of the options, a command substitution has lost `set
/// -e`.
const END: &str = r#"case ${__sandtimer_end-} in '') \builtin false ;; *)
__sandtimer_variables=$(\set +eufx; IFS=$' \t\n'
for __sandtimer in $(\compgen -v); do
case $__sandtimer in
SANDTIMER_OWN) ;;
*) case ${!__sandtimer@a} in *x*) ;; *) \builtin declare -p "$__sandtimer" ;; esac ;;
esac
done; \builtin true)
__sandtimer_prewarmed=$(\shopt -p; \set +o; \builtin declare -f; \builtin export -fp; \builtin alias -p
case $__sandtimer_end in *e*) \builtin echo '\set -e' ;; esac; \builtin true)
\unset -v __sandtimer_end __sandtimer_begun ;;
esac"#;

/// A script for the shells of sessions. Shells that share it share its result: once it has failed
/// it is not run again.
#[derive(Debug)]
pub struct ShellPrewarm {
    pub(super) script: Prewarm,
    pub(super) failure: OnceLock<String>,
}

impl ShellPrewarm {
    /// Makes one whose script has not run yet.
    pub fn new(script: Prewarm) -> Arc<Self> {
        Arc::new(ShellPrewarm { script, failure: OnceLock::new() })
    }

    /// Why it has failed, and is not run any more.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// The script as a shell is sent it. A directory that a session is opened with is gone back to.
    pub(super) fn command(&self, has_directory: bool) -> String {
        let script = self.script.source.replace('\'', r"'\''");
        let back = if has_directory { "\\builtin cd -- \"$__sandtimer_begun\"\n" } else { "" };
        let end = END.replace("SANDTIMER_OWN", OWN);
        // Two line ends: the script may end with a backslash.
        format!("__sandtimer_begun=$PWD\n\\builtin eval '{script}\n\n__sandtimer_end=$-'\n{back}{end}")
    }
}
