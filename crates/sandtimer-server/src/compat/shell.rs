//! Scripts for bash. A caller's text is always in them as one quoted word.

/// A word that bash reads as exactly this text.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Enters a directory, or prints that it cannot.
fn entered(directory: &str) -> (String, String) {
    let quoted_directory = quoted(directory);
    let failure = quoted(&format!("Failed to change directory to '{directory}'"));
    (
        format!("\\builtin cd -- {quoted_directory} 2>/dev/null"),
        format!("\\builtin printf '%s\\n' {failure} >&2"),
    )
}

/// A command with a directory and variables of its own, which are restored in the session after it.
/// Like the command itself it is executed at the top level of the shell, so that what it declares
/// stays.
pub(super) fn around(command: &str, directory: Option<&str>, variables: &[(String, String)]) -> String {
    if directory.is_none() && variables.is_empty() {
        return command.to_owned();
    }
    let (mut before, mut after) = (String::new(), String::new());
    for (index, (name, value)) in variables.iter().enumerate() {
        before.push_str(&format!(
            "__sandtimer_{index}=$(\\builtin declare -p {name} 2>/dev/null)\n\\builtin export {name}={}\n",
            quoted(value)
        ));
        after.push_str(&format!(
            "\\builtin unset -v {name}; \\builtin eval \"$__sandtimer_{index}\"; \\builtin unset -v __sandtimer_{index}\n"
        ));
    }
    let executed = format!("{before}\\builtin eval {}\n__sandtimer_status=$?\n{after}", quoted(command));
    let Some(directory) = directory else {
        return format!("{executed}(\\builtin exit \"$__sandtimer_status\")");
    };
    let (enter, failed) = entered(directory);
    format!(
        "__sandtimer_was=$PWD\nif {enter}; then\n{executed}\\builtin cd -- \"$__sandtimer_was\" 2>/dev/null\n\
         else {failed}; __sandtimer_status=1; fi\n(\\builtin exit \"$__sandtimer_status\")"
    )
}

/// Has a session write the state that a process takes over from it: variables for programs,
/// functions, and the directory.
pub(super) const HANDOFF_SCRIPT: &str =
    "{ \\builtin export -p; \\builtin declare -f; \\builtin printf '\\\\builtin cd -- %q\\n' \"$PWD\"; }";

/// A program for a shell of its own: what it takes over, then its own directory and variables, then
/// the command.
pub(super) fn program(
    handoff: &str,
    command: &str,
    directory: Option<&str>,
    variables: &[(String, String)],
) -> String {
    let mut text = String::new();
    if !handoff.is_empty() {
        // Variables that cannot be set again are as they are already.
        text.push_str(&format!("\\builtin eval {} 2>/dev/null\n", quoted(handoff)));
    }
    for (name, value) in variables {
        text.push_str(&format!("\\builtin export {name}={}\n", quoted(value)));
    }
    if let Some(directory) = directory {
        let (enter, failed) = entered(directory);
        text.push_str(&format!("{enter} || {{ {failed}; \\builtin exit 1; }}\n"));
    }
    text.push_str(command);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_string_is_one_argument() {
        assert_eq!(quoted("a'b; $(rm) `x`"), "'a'\\''b; $(rm) `x`'");
        assert_eq!(around("a", None, &[]), "a");
        assert_eq!(program("", "a", None, &[]), "a");
    }
}
