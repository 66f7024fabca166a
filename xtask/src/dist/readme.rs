//! The first command, the install section and the first calls of README.md, which the rehearsal
//! runs as they are written.

use crate::Result;

/// How README.md starts the command in a checkout.
const IN_CHECKOUT: &str = "cargo run --release -- ";

/// Where README.md has the files of a release.
const RELEASE: &str = "target/dist";

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

/// Returns the commands of the install section, for a release in the directory `release`.
pub(super) fn install(readme: &str, release: &str) -> Result<String> {
    let section =
        readme.split_once("\n## Install\n").map(|(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let section = section.ok_or("README.md has no section `Install`")?;
    let (_, block) = section
        .split_once("\n```console")
        .ok_or("the section `Install` of README.md has no console block")?;
    let block = block.split("\n```").next().unwrap_or(block);
    let commands: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    if !commands.iter().any(|command| command.contains(RELEASE)) {
        return Err(format!("the section `Install` of README.md does not install from {RELEASE}"));
    }
    Ok(commands.join("\n").replace(RELEASE, release) + "\n")
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
        let commands = install(&readme, "/release").expect("commands");
        assert!(
            commands.contains("pip install /release/sandtimer-")
                && commands.contains("npm install /release/")
        );
        assert!(commands.ends_with('\n') && !commands.contains(RELEASE), "{commands}");
        assert!(block(&readme, "ts").expect("a block").contains("from \"sandtimer\""));
    }

    #[test]
    fn readme_is_one_page() {
        let readme = std::fs::read_to_string(crate::root().join("README.md")).expect("readable");
        assert!(readme.lines().count() <= 150, "{} lines", readme.lines().count());
    }

    #[test]
    fn missing_block_is_reported() {
        assert!(block("# Title\n\n```console\n$ ls\n```\n", "python").unwrap_err().contains("python"));
        assert!(first_command("# Title\n\n```console\n$ ls\n```\n").unwrap_err().contains("cargo run"));
        assert!(install("# Title\n", "/release").unwrap_err().contains("no section"));
        let elsewhere = "# Title\n\n## Install\n\n```console\n$ pip install sandtimer\n```\n";
        assert!(install(elsewhere, "/release").unwrap_err().contains(RELEASE));
    }
}
