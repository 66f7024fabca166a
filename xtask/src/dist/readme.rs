//! The first command and the first calls of README.md, which the rehearsal runs as they are written.

use crate::Result;

/// How README.md starts the command in a checkout.
const IN_CHECKOUT: &str = "cargo run --release -- ";

/// Returns the content of the first block of code in `language`.
pub(super) fn block<'a>(readme: &'a str, language: &str) -> Result<&'a str> {
    let fence = format!("\n```{language}\n");
    let found = readme.split_once(&fence).and_then(|(_, rest)| rest.split_once("\n```"));
    found.map(|(block, _)| block).ok_or_else(|| format!("README.md has no block of {language}"))
}

/// Returns the first command as a user of the installed package types it.
pub(super) fn first_command(readme: &str) -> Result<String> {
    let block = block(readme, "console")?;
    let arguments = block.lines().find_map(|line| line.strip_prefix("$ ")?.strip_prefix(IN_CHECKOUT));
    let arguments = arguments.ok_or_else(|| format!("README.md does not start with `{IN_CHECKOUT}`"))?;
    Ok(format!("sandtimer {arguments}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_has_first_command_and_calls() {
        let readme = std::fs::read_to_string(crate::root().join("README.md")).expect("readable");
        let command = first_command(&readme).expect("a command");
        assert!(
            command.starts_with("sandtimer run ") && command.contains("examples/runaway.py"),
            "{command}"
        );
        assert!(block(&readme, "python").expect("a block").starts_with("import sandtimer"));
        assert!(block(&readme, "ts").expect("a block").contains("from \"sandtimer\""));
    }

    #[test]
    fn missing_block_is_reported() {
        assert!(block("# Title\n\n```console\n$ ls\n```\n", "python").unwrap_err().contains("python"));
        assert!(first_command("# Title\n\n```console\n$ ls\n```\n").unwrap_err().contains("cargo run"));
    }
}
