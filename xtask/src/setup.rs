//! Getting a machine ready for the tests: system packages, tools, a Python environment of their
//! own, npm packages.
//!
//! Nothing outside `target/` and `typescript/node_modules/` is changed, except that missing system
//! packages are installed where this may be done.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, dist, root, step};

/// A Debian package, how to see whether what it brings is there, and what becomes of the tests
/// without it.
struct SystemPackage {
    name: &'static str,
    probe: &'static [&'static str],
    without: &'static str,
}

/// Add what the tests need from the system here.
const SYSTEM_PACKAGES: &[SystemPackage] = &[
    SystemPackage {
        name: "bubblewrap",
        probe: &["bwrap", "--version"],
        without: "comparisons with bubblewrap, and outer cages built by it, are skipped",
    },
    SystemPackage {
        name: "make",
        probe: &["make", "--version"],
        without: "tests that run a parallel make are skipped",
    },
    SystemPackage {
        name: "gcc",
        probe: &["gcc", "--version"],
        without: "tests that compile a program are skipped",
    },
    SystemPackage {
        name: "python3-venv",
        probe: &["python3", "-c", "import ensurepip, venv"],
        without: "the Python environment cannot be made",
    },
    SystemPackage {
        name: "nodejs",
        probe: &["node", "-e", "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)"],
        without: "tests of JavaScript and TypeScript fail: they need Node.js 20 or newer",
    },
    SystemPackage {
        name: "chromium",
        probe: &["chromium", "--version"],
        without: "tests of the server's page are skipped",
    },
    SystemPackage {
        name: "nats-server",
        // Outside of many users' PATH.
        probe: &["sh", "-c", "PATH=$PATH:/usr/sbin nats-server --version"],
        without: "tests of the store of jobs on a NATS server are skipped",
    },
    SystemPackage {
        name: "curl",
        probe: &["curl", "--version"],
        without: "tests of the proxy of sandboxes fail",
    },
    SystemPackage {
        name: "git",
        probe: &["git", "--version"],
        without: "tests of the proxy of sandboxes fail",
    },
    SystemPackage {
        name: "iproute2",
        probe: &["ip", "-V"],
        without: "the test of workers on several machines is skipped",
    },
];

/// What the suites of other projects need besides.
const SUITE_PACKAGES: &[SystemPackage] = &[
    SystemPackage {
        name: "git",
        probe: &["git", "--version"],
        without: "the clients of verl and open-r1 cannot be fetched",
    },
    SystemPackage {
        name: "npm",
        probe: &["npm", "--version"],
        without: "srt, Codex and LibreChat's script cannot be fetched",
    },
    SystemPackage {
        name: "python3-seccomp",
        probe: &["/usr/bin/python3", "-c", "import seccomp"],
        without: "bubblewrap's tests of filters fail",
    },
    SystemPackage { name: "ripgrep", probe: &["rg", "--version"], without: "srt fails" },
    SystemPackage { name: "socat", probe: &["socat", "-V"], without: "srt fails" },
];

/// Programs without which no test can run, and where they come from.
const TOOLS: &[(&str, &str)] = &[
    ("cargo", "install Rust with rustup"),
    ("python3", "install Python 3"),
    ("cc", "install a C compiler, such as Debian's gcc"),
];

/// A Python environment below `target/`.
pub(crate) struct PythonEnvironment {
    directory: &'static str,
    /// Its packages, pinned.
    requirements: &'static str,
}

/// The environment of the tests.
const TESTS: PythonEnvironment = PythonEnvironment::new("target/python", "python/tests/requirements.txt");

/// The environment that builds the documentation site.
pub(crate) const SITE: PythonEnvironment =
    PythonEnvironment::new("target/docs-python", "docs/requirements.txt");

/// Installs what is missing, if this process may; else prints what will be skipped.
pub(crate) fn system_packages() -> Result {
    install_missing(SYSTEM_PACKAGES)
}

/// The same for what the suites of other projects need.
pub(crate) fn suite_packages() -> Result {
    install_missing(SUITE_PACKAGES)
}

fn install_missing(packages: &[SystemPackage]) -> Result {
    let missing: Vec<_> = packages.iter().filter(|package| !step::succeeds(package.probe)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    let rejection = match install(&names) {
        Ok(()) => return Ok(()),
        Err(rejection) => rejection,
    };
    println!("not installed, and cannot be: {rejection}");
    for package in missing {
        println!("  without {}: {}", package.name, package.without);
    }
    println!("  to install them: sudo apt-get install {}", names.join(" "));
    Ok(())
}

fn install(names: &[&str]) -> Result {
    if !step::succeeds(&["apt-get", "--version"]) {
        return Err("this system has no apt-get".to_owned());
    }
    if !is_root() {
        return Err("apt-get needs root".to_owned());
    }
    let apt = |arguments: &[&str]| {
        let mut command = step::command("apt-get", arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        step::run(command)
    };
    // Stale lists are the usual state of an image, but an unreachable mirror is no reason not to
    // try.
    let _ = apt(&["update", "--quiet=2"]);
    apt(&[&["install", "--quiet=2", "--yes", "--no-install-recommends"], names].concat())
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Fails naming every tool that is not there.
pub(crate) fn tools() -> Result {
    let missing: Vec<String> = TOOLS
        .iter()
        .filter(|(program, _)| !step::succeeds(&[program, "--version"]))
        .map(|(program, remedy)| format!("`{program}` cannot be run: {remedy}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
}

/// The interpreter of the tests' Python environment.
pub(crate) fn python(root: &Path) -> PathBuf {
    TESTS.python(root)
}

/// Makes the tests' Python environment, or makes it again when its packages or the interpreter have
/// changed.
pub(crate) fn python_environment() -> Result {
    TESTS.prepare()
}

/// The tests' Python with `arguments`.
pub(crate) fn in_environment(arguments: &[&str]) -> Command {
    TESTS.command(arguments)
}

const PIP_QUIET: &str = "-qq";

impl PythonEnvironment {
    pub(crate) const fn new(directory: &'static str, requirements: &'static str) -> Self {
        Self { directory, requirements }
    }

    pub(crate) fn python(&self, root: &Path) -> PathBuf {
        root.join(self.directory).join("bin/python")
    }

    /// Makes the environment, or makes it again when its packages or the interpreter have changed.
    pub(crate) fn prepare(&self) -> Result {
        let root = root();
        let path = root.join(self.directory);
        let requirements = root.join(self.requirements);
        let packages = fs::read_to_string(&requirements)
            .map_err(|error| format!("cannot read {}: {error}", requirements.display()))?;
        let interpreter = step::output(step::command(
            "python3",
            &["-c", "import sys; print(sys.executable, sys.version)"],
        ))?;
        let wanted = format!("{interpreter}\n{packages}");
        // Written last, so that an interrupted installation is never taken for a whole one.
        let stamp = path.join("xtask-stamp");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && self.python(&root).exists() {
            return Ok(());
        }
        let path = path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))?;
        step::run(step::command("python3", &["-m", "venv", "--clear", path]))?;
        step::run(self.command(&["-m", "pip", "install", PIP_QUIET, "--requirement", self.requirements]))?;
        fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
    }

    /// The environment's Python with `arguments`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = step::command(&self.python(&root()).to_string_lossy(), arguments);
        // What is installed is what is used, wherever the caller's variables point.
        command.env_remove("PYTHONPATH").env_remove("PYTHONHOME").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command
    }
}

/// Packs the Python package with the module that `cargo build --workspace` has made as a wheel, and
/// installs it into the environment.
///
/// maturin would build the module again: it passes other settings to PyO3's build scripts than a
/// plain `cargo build` does. Releases are built with it.
pub(crate) fn python_package() -> Result {
    let (tree, wheels) = (root().join("target/wheel-tree"), root().join("target/wheels"));
    dist::clear(&tree)?;
    dist::clear(&wheels)?;
    let package = root().join("python/sandtimer");
    step::run(step::command("cp", &["--recursive", &package.to_string_lossy(), &tree.to_string_lossy()]))?;
    let (built, module) =
        (target().join("debug/lib_sandtimer.so"), tree.join("sandtimer/_sandtimer.abi3.so"));
    fs::copy(&built, module).map_err(|error| format!("cannot copy {}: {error}", built.display()))?;
    let tree = tree.to_string_lossy();
    let mut metadata = in_environment(&["-m", "maturin", "pep517", "write-dist-info"]);
    metadata.args(["--metadata-directory", &tree, "--interpreter"]).arg(python(&root()));
    metadata.current_dir(root().join("python"));
    step::output(metadata)?;
    step::output(in_environment(&["-m", "wheel", "pack", &tree, "--dest-dir", &wheels.to_string_lossy()]))?;
    install_wheel(&only_wheel(&wheels)?)
}

/// The wheel in a directory that was empty before it was built.
pub(crate) fn only_wheel(wheels: &Path) -> Result<PathBuf> {
    let wheel = fs::read_dir(wheels)
        .and_then(|mut entries| entries.next().transpose())
        .map_err(|error| format!("cannot read {}: {error}", wheels.display()))?;
    wheel.map(|wheel| wheel.path()).ok_or_else(|| format!("{} has no wheel", wheels.display()))
}

/// Installs the package's `wheel` into the tests' Python environment.
pub(crate) fn install_wheel(wheel: &Path) -> Result {
    let pip = ["-m", "pip", "install", PIP_QUIET, "--no-index", "--no-deps", "--force-reinstall"];
    step::run(in_environment(&[&pip[..], &[&wheel.to_string_lossy()]].concat()))
}

/// The binary that `cargo build` makes.
pub(crate) fn binary() -> PathBuf {
    target().join("debug/sandtimer")
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target)
}

/// The least Node that the TypeScript client supports.
const NODE: u32 = 20;

/// Fails saying why where the TypeScript client cannot be tested.
pub(crate) fn node() -> Result {
    let wanted = || format!("the TypeScript client needs Node {NODE} or later, with npm");
    let version = step::output(step::command("node", &["--version"])).map_err(|_| wanted())?;
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major: u32| major < NODE) {
        return Err(format!("{}; this is {version}", wanted()));
    }
    if step::succeeds(&["npm", "--version"]) { Ok(()) } else { Err(wanted()) }
}

/// npm in the TypeScript client's directory.
pub(crate) fn npm(arguments: &[&str]) -> Command {
    let mut command = step::command("npm", arguments);
    command.current_dir(root().join("typescript"));
    command
}

/// Installs what the TypeScript client is built and tested with, as in its lock file, if that is
/// not there yet.
pub(crate) fn typescript_packages() -> Result {
    let directory = root().join("typescript");
    let lock = directory.join("package-lock.json");
    let wanted =
        fs::read_to_string(&lock).map_err(|error| format!("cannot read {}: {error}", lock.display()))?;
    // Written last, so that an interrupted installation is never taken for a whole one.
    let stamp = directory.join("node_modules/.xtask-stamp");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    step::run(npm(&["ci", "--ignore-scripts", "--loglevel=error"]))?;
    fs::write(&stamp, wanted).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
}

/// Installs into `directory` what the lock file in `locked` names, with npm's `options`, if that is
/// not there yet.
pub(crate) fn npm_packages(locked: &Path, directory: &Path, options: &[&str]) -> Result {
    let read = |name: &str| {
        let path = locked.join(name);
        fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let (package, lock) = (read("package.json")?, read("package-lock.json")?);
    // Written last, so that an interrupted installation is never taken for a whole one.
    let stamp = directory.join("node_modules/.xtask-stamp");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == lock) {
        return Ok(());
    }
    let write = |path: PathBuf, text: &str| {
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir_all(directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    write(directory.join("package.json"), &package)?;
    write(directory.join("package-lock.json"), &lock)?;
    let quiet = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let mut command = step::command("npm", &[&quiet[..], options].concat());
    command.current_dir(directory);
    step::run(command)?;
    write(stamp, &lock)
}
