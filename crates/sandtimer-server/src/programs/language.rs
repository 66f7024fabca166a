//! The table of languages, and which of them this host has: a language is served if its tools print
//! their version in a run.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use regex::Regex;
use sandtimer::{Ending, Engine, Limits, Spec};
use tokio::sync::OnceCell;

/// How long a tool may take to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// The placeholder of the main file in the command of a language.
const FILE: &str = "{file}";
/// The placeholder of the name of the main file without its extension.
const STEM: &str = "{stem}";
/// What compilers leave.
pub(super) const COMPILED_FILE: &str = "program";

/// One language, as a row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProgramLanguage {
    /// Its name here.
    pub name: &'static str,
    /// Its name for people, without the version.
    pub title: &'static str,
    /// The file that a program is written to unless its sender names one.
    pub file: &'static str,
    /// The extensions of files that are compiled together.
    pub extensions: &'static [&'static str],
    /// Prints the version.
    version: &'static [&'static str],
    /// A script that compiles its arguments (options, then files) to a file named `program`; `None`
    /// for an interpreter.
    pub(super) compile: Option<&'static str>,
    run: &'static [&'static str],
    /// How it is compiled and run, for answers.
    pub shown: [Option<&'static str>; 2],
}

const fn interpreted(
    name: &'static str,
    title: &'static str,
    file: &'static str,
    version: &'static [&'static str],
    run: &'static [&'static str],
) -> ProgramLanguage {
    ProgramLanguage { name, title, file, extensions: &[], version, compile: None, run, shown: [None, None] }
}

pub(crate) static PYTHON: ProgramLanguage =
    interpreted("python", "Python", "main.py", &["python3", "--version"], &["python3", FILE]);
pub(crate) static JAVASCRIPT: ProgramLanguage =
    interpreted("javascript", "JavaScript", "main.js", &["node", "--version"], &["node", FILE]);
/// Types are removed by the server, so its version is that of Node.js.
pub(crate) static TYPESCRIPT: ProgramLanguage =
    interpreted("typescript", "TypeScript", "main.ts", &["node", "--version"], &["node", FILE]);
pub(crate) static BASH: ProgramLanguage =
    interpreted("bash", "Bash", "main.sh", &["bash", "--version"], &["bash", FILE]);
pub(crate) static PERL: ProgramLanguage =
    interpreted("perl", "Perl", "main.pl", &["perl", "-e", "print $^V"], &["perl", FILE]);
pub(crate) static PHP: ProgramLanguage =
    interpreted("php", "PHP", "main.php", &["php", "--version"], &["php", FILE]);
pub(crate) static RUBY: ProgramLanguage =
    interpreted("ruby", "Ruby", "main.rb", &["ruby", "--version"], &["ruby", FILE]);
pub(crate) static LUA: ProgramLanguage =
    interpreted("lua", "Lua", "main.lua", &["lua", "-v"], &["lua", FILE]);
pub(crate) static R: ProgramLanguage =
    interpreted("r", "R", "main.R", &["Rscript", "--version"], &["Rscript", FILE]);
pub(crate) static C: ProgramLanguage = ProgramLanguage {
    extensions: &["c"],
    compile: Some("exec gcc \"$@\" -o program -lm"),
    shown: [Some("gcc main.c -o program -lm"), Some("./program")],
    ..interpreted("c", "C (GCC)", "main.c", &["gcc", "-dumpfullversion"], &["./program"])
};
pub(crate) static CPP: ProgramLanguage = ProgramLanguage {
    extensions: &["cpp", "cc", "cxx", "c++"],
    compile: Some("exec g++ -std=c++17 \"$@\" -o program"),
    shown: [Some("g++ -std=c++17 main.cpp -o program"), Some("./program")],
    ..interpreted("cpp", "C++ (GCC)", "main.cpp", &["g++", "-dumpfullversion"], &["./program"])
};
pub(crate) static RUST: ProgramLanguage = ProgramLanguage {
    compile: Some("exec rustc --edition=2021 \"$@\" -o program"),
    shown: [Some("rustc --edition=2021 main.rs -o program"), Some("./program")],
    ..interpreted("rust", "Rust", "main.rs", &["rustc", "--version"], &["./program"])
};
pub(crate) static GO: ProgramLanguage = ProgramLanguage {
    extensions: &["go"],
    compile: Some("export GOCACHE=/tmp/go-build; exec go build -o program \"$@\""),
    shown: [Some("go build -o program main.go"), Some("./program")],
    ..interpreted("go", "Go", "main.go", &["go", "version"], &["./program"])
};
pub(crate) static JAVA: ProgramLanguage = ProgramLanguage {
    extensions: &["java"],
    compile: Some(
        "javac -cp '.:*' -d /tmp/classes \"$@\" && exec jar --create --file program -C /tmp/classes .",
    ),
    shown: [Some("javac Main.java"), Some("java -ea Main")],
    ..interpreted(
        "java",
        "Java",
        "Main.java",
        &["javac", "-version"],
        // With the archives that it came with.
        &["java", "-ea", "-cp", "program:*", STEM],
    )
};

/// All of them.
pub(crate) static LANGUAGES: [&ProgramLanguage; 14] =
    [&PYTHON, &JAVASCRIPT, &TYPESCRIPT, &BASH, &C, &CPP, &GO, &JAVA, &LUA, &PERL, &PHP, &R, &RUBY, &RUST];

impl ProgramLanguage {
    pub fn is_compiled(&self) -> bool {
        self.compile.is_some()
    }

    /// What a program in a workspace with a name is written to there.
    pub fn written(&self) -> &'static [&'static str] {
        match self.name {
            "python" | "javascript" | "typescript" | "bash" => &[],
            "php" => &["main.php"],
            "r" => &["main.R"],
            _ => &[COMPILED_FILE],
        }
    }

    /// The command that runs a program, for answers.
    pub fn run_line(&self) -> String {
        self.command(self.file).join(" ")
    }

    /// The command that runs a program, whose arguments follow it.
    pub(super) fn command(&self, file: &str) -> Vec<String> {
        let name = file.rsplit('/').next().unwrap_or(file);
        let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
        self.run.iter().map(|part| part.replace(FILE, file).replace(STEM, stem)).collect()
    }
}

/// Which languages this host has; each is searched for once.
#[derive(Debug, Default)]
pub(crate) struct Toolchains {
    found: std::sync::Mutex<HashMap<&'static str, Arc<OnceCell<Option<String>>>>>,
}

impl Toolchains {
    /// The version of a language, `MAJOR.MINOR.PATCH`; `None` if this host does not have it.
    pub async fn version(&self, engine: &Engine, language: &'static ProgramLanguage) -> Option<String> {
        let cell = {
            // Each change is one call on the map.
            let mut found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found.entry(language.name).or_default().clone()
        };
        let engine = engine.clone();
        let find = || async {
            let found = tokio::task::spawn_blocking(move || find_version(&engine, language)).await;
            found.map_err(drop)?
        };
        // What could not be found out is tried again by the next caller.
        cell.get_or_try_init(find).await.ok().cloned().flatten()
    }

    /// The languages that this host has, with their versions.
    pub async fn all(&self, engine: &Engine) -> Vec<(&'static ProgramLanguage, String)> {
        let versions = LANGUAGES.map(|language| self.version(engine, language));
        let versions = futures_util::future::join_all(versions).await;
        let with_version =
            |(language, version): (&&'static ProgramLanguage, Option<String>)| Some((*language, version?));
        LANGUAGES.iter().zip(versions).filter_map(with_version).collect()
    }
}

/// Runs a tool that prints its version. `Err`: it could not be run now. Blocks.
fn find_version(engine: &Engine, language: &ProgramLanguage) -> Result<Option<String>, ()> {
    let spec = Spec {
        command: language.version.iter().map(Into::into).collect(),
        private_workspace: true,
        limits: Limits::new().wall(VERSION_TIMEOUT),
        ..Spec::default()
    };
    match engine.run_blocking(spec) {
        Ok(outcome) if outcome.ending == Ending::Exited => {
            let text = format!("{}\n{}", outcome.stdout, outcome.stderr);
            Ok(if outcome.ok { version_in(&text) } else { None })
        }
        Err(sandtimer::Error::Files(_)) => Ok(None),
        _ => Err(()),
    }
}

/// The first version in a text, with three numbers.
fn version_in(text: &str) -> Option<String> {
    static NUMBERS: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?").ok());
    let found = NUMBERS.as_ref()?.captures(text)?;
    let number = |index| found.get(index).map_or("0", |number| number.as_str());
    Some(format!("{}.{}.{}", number(1), number(2), number(3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_three_numbers() {
        for (text, version) in [
            ("Python 3.11.7\n", "3.11.7"),
            ("v20.20.2", "20.20.2"),
            ("GNU bash, version 5.2.15(1)-release", "5.2.15"),
            ("12\n", "12.0.0"),
            ("go version go1.22 linux/amd64", "1.22.0"),
        ] {
            assert_eq!(version_in(text).as_deref(), Some(version), "{text}");
        }
        assert_eq!(version_in("none"), None);
    }

    #[test]
    fn commands_name_the_file() {
        assert_eq!(PYTHON.command("a/b.py"), ["python3", "a/b.py"]);
        assert_eq!(JAVA.command("src/Main.java").last().map(String::as_str), Some("Main"));
        assert_eq!(C.command("main.c"), ["./program"]);
    }
}
