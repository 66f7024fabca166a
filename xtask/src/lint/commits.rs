//! The subjects of commits: `area: imperative summary`, with at most 72 characters.

use regex::Regex;

use crate::{Result, step};

const MAX_SUBJECT_LENGTH: usize = 72;

/// Fails if the subject of a commit in `range`, such as `main..HEAD`, breaks the rule. Merges are
/// left out.
pub(crate) fn check(range: &str) -> Result {
    let listing = ["log", "--no-merges", "--format=%h %s", "--end-of-options", range, "--"];
    let listing = step::output(step::command("git", &listing))?;
    let wrong: Vec<String> = listing.lines().filter_map(fault).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// What is wrong with one line of the listing.
fn fault(line: &str) -> Option<String> {
    let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
    let length = subject.chars().count();
    let problem = if length > MAX_SUBJECT_LENGTH {
        format!("has {length} characters; use at most {MAX_SUBJECT_LENGTH}")
    } else {
        problem(subject)?.to_owned()
    };
    Some(format!("{commit}: subject \"{subject}\" {problem}"))
}

fn problem(subject: &str) -> Option<&'static str> {
    let form = Regex::new(r"^[a-z0-9][a-z0-9_./+-]*(, ?[a-z0-9][a-z0-9_./+-]*)*: (\S.*)$").expect("valid");
    let Some(parts) = form.captures(subject) else {
        return Some("does not have the form `area: imperative summary`");
    };
    let other_forms =
        r"(?i)^(add|chang|delet|fix|mov|refus|reject|remov|renam|replac|updat)(s|es|ed|d|ing)\b";
    let other_forms = Regex::new(other_forms).expect("valid");
    if other_forms.is_match(&parts[2]) {
        return Some("is not imperative; write what the commit does as a command: add, fix, remove");
    }
    subject.ends_with('.').then_some("ends with a full stop; leave it out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_the_form_are_accepted() {
        for subject in [
            "limits: reject durations that overflow",
            "sandtimer-os: add `pidfd_send_signal`",
            "docs, xtask: check the words of documents",
            "ci: 3.14",
        ] {
            assert_eq!(fault(&format!("abc1234 {subject}")), None);
        }
    }

    #[test]
    fn other_subjects_are_reported_with_the_reason() {
        let long = format!("limits: {}", "x".repeat(65));
        for (subject, part) in [
            ("Reject durations that overflow", "`area: imperative summary`"),
            ("limits:reject", "`area: imperative summary`"),
            ("limits: ", "`area: imperative summary`"),
            ("limits: rejects durations", "is not imperative"),
            ("limits: Fixing durations", "is not imperative"),
            ("limits: reject durations.", "full stop"),
            ("", "`area: imperative summary`"),
            (long.as_str(), "has 73 characters; use at most 72"),
        ] {
            let found = fault(&format!("abc1234 {subject}")).expect("refused");
            assert!(found.starts_with("abc1234: subject") && found.contains(part), "{found}");
        }
    }
}
