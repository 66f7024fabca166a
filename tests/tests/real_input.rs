//! Real projects, unmodified: what they print and build inside `sandtimer run --workspace` is what
//! they print and build outside, whoever owns the directory, and everything they leave in it is its
//! owner's.
//!
//! The sources are fetched once into `target/real-input`. Where they cannot be had the tests fail,
//! unless `SANDTIMER_OFFLINE=1` says that this is known. The hard fact: programs that contain their
//! own path, times or a hash seed differ from build to build, so both runs have the same directory,
//! file times and variables.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sandtimer_tests::command::{RunInvocation, Visitor, hostile};
use sandtimer_tests::process::{FinishedProcess, start};
use sandtimer_tests::wait::alone;
use tempfile::TempDir;

const HARD_STOP: Duration = Duration::from_secs(120);
const USER: u32 = 1234;
/// The same in both runs: the messages' language, and a hash seed that does not differ from run to
/// run.
const VARIABLES: &[(&str, &str)] = &[("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "0")];

/// A project, how to get it, and what it is made to do.
struct Project {
    name: &'static str,
    /// A shell script that leaves `source.tar.gz` in the directory it is started in.
    fetch: &'static str,
    /// Programs the fetching needs.
    needs: &'static [&'static str],
    /// Where in the output the number of tests, or their success, is said.
    passed: &'static str,
    /// Built files, which must be the same to the byte.
    products: &'static [&'static str],
}

/// 817 tests of pure Python that need nothing but the standard library.
const PYTHON: Project = Project {
    name: "more-itertools-10.5.0",
    fetch: "hash=5482bfef7849c25dc3c6dd53a6173ae4795da2a41a80faea6700d9f5846c5da6
            echo more-itertools==10.5.0 --hash=sha256:$hash >wanted
            python3 -m pip download --quiet --no-deps --no-binary :all: --require-hashes -r wanted
            mv more*itertools-10.5.0.tar.gz source.tar.gz",
    needs: &["python3"],
    passed: "Ran 817 tests",
    products: &[],
};

/// A C library and two programs; its default target builds them and compresses and compares six
/// samples.
const C: Project = Project {
    name: "bzip2",
    // The machine's own Debian or Ubuntu sources, asked for source packages. Nothing outside this
    // directory changes.
    fetch: "mkdir -p lists/partial cache/archives/partial parts
            for file in sources.list sources.list.d/debian.sources sources.list.d/ubuntu.sources; do
              copy=parts/$(basename $file | sed 's/^sources.list/main.list/')
              ! [ -e /etc/apt/$file ] ||
                sed -E 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' /etc/apt/$file >$copy
            done
            own='-o Dir::Etc::sourcelist=/dev/null -o APT::Sandbox::User='
            for setting in Etc::sourceparts=parts State::lists=lists Cache=cache; do
              own=\"$own -o Dir::${setting%=*}=$PWD/${setting#*=}\"
            done
            apt-get $own -qq update
            apt-get $own -qq source --download-only bzip2
            mv bzip2_*.orig.tar.gz source.tar.gz",
    needs: &["apt-get"],
    passed: "./bzip2 -d  < sample1.bz2 > sample1.tst",
    products: &["bzip2", "bzip2recover", "libbz2.a", "sample1.rb2", "sample2.tst"],
};

/// The project's archive; `None` where it is known that there is no network.
fn archive(project: &Project) -> Option<PathBuf> {
    let target =
        hostile().parent().and_then(Path::parent).map(Path::to_path_buf).expect("a target directory");
    let directory = target.join("real-input");
    let archive = directory.join(format!("{}.tar.gz", project.name));
    if archive.exists() {
        return Some(archive);
    }
    if std::env::var_os("SANDTIMER_OFFLINE").is_some_and(|value| value == "1") {
        return None;
    }
    fs::create_dir_all(&directory).expect("the target directory can be written");
    // Another test may be fetching it too: each into a directory of its own, and a rename is whole
    // or not at all.
    let temporary =
        tempfile::Builder::new().prefix("fetch-").tempdir_in(&directory).expect("a directory to fetch into");
    let mut command = Command::new("sh");
    command.args(["-ec", project.fetch]).current_dir(temporary.path());
    let finished = start(&mut command, vec![], HARD_STOP).finish();
    assert!(
        finished.code() == Some(0),
        "{} cannot be fetched (it needs {} and the network; SANDTIMER_OFFLINE=1 leaves this test out): {}",
        project.name,
        project.needs.join(", "),
        finished.errors()
    );
    fs::rename(temporary.path().join("source.tar.gz"), &archive).expect("the script leaves the archive");
    Some(archive)
}

/// The project in a directory whose parents only its owner can enter.
struct Checkout {
    parent: TempDir,
    source: PathBuf,
    archive: PathBuf,
    owner: u32,
}

impl Checkout {
    fn new(archive: &Path) -> Self {
        let parent = tempfile::Builder::new().prefix("st-real-").tempdir().expect("a temporary directory");
        let private = parent.path().join("private");
        fs::DirBuilder::new().mode(0o700).create(&private).expect("own directory");
        Checkout { source: private.join("source"), parent, archive: archive.into(), owner: 0 }
    }

    /// Unpacks it again, all of it `owner`'s.
    fn renew(&mut self, owner: u32) {
        // Not there the first time.
        let _ = fs::remove_dir_all(&self.source);
        fs::create_dir(&self.source).expect("own directory");
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--no-same-owner", "--strip-components=1", "--file"]).arg(&self.archive);
        let finished = start(tar.arg("--directory").arg(&self.source), vec![], HARD_STOP).finish();
        assert_eq!(finished.code(), Some(0), "tar: {}", finished.errors());
        let mode = fs::Permissions::from_mode;
        fs::set_permissions(self.parent.path(), mode(0o700)).expect("own directory");
        fs::set_permissions(&self.source, mode(0o700)).expect("own directory");
        self.owner = owner;
        each(self.parent.path(), &mut |path, _| {
            std::os::unix::fs::lchown(path, Some(owner), Some(owner)).expect("root")
        });
    }

    /// Whose the files are that are not the owner's.
    fn strangers(&self) -> Vec<String> {
        let mut found = vec![];
        each(self.parent.path(), &mut |path, facts| {
            if (facts.uid(), facts.gid()) != (self.owner, self.owner) {
                found.push(format!("{} is {}:{}", path.display(), facts.uid(), facts.gid()));
            }
        });
        found
    }

    fn files(&self) -> usize {
        let mut count = 0;
        each(&self.source, &mut |_, _| count += 1);
        count
    }

    fn products(&self, project: &Project) -> BTreeMap<&'static str, Vec<u8>> {
        let read = |name: &&'static str| {
            let path = self.source.join(name);
            (*name, fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        };
        project.products.iter().map(read).collect()
    }

    /// The command as it is, as the owner.
    fn outside(&self, argv: &[&str]) -> FinishedProcess {
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]).current_dir(&self.source).env_clear().envs(VARIABLES.iter().copied());
        for name in ["PATH", "HOME"] {
            command.env(name, std::env::var_os(name).unwrap_or_default());
        }
        start(command.uid(self.owner).gid(self.owner), vec![], HARD_STOP).finish()
    }

    /// The command inside, by root or by the visitor.
    fn inside(&self, visitor: Option<&Visitor>, argv: &[&str]) -> FinishedProcess {
        let mut run = RunInvocation::new().flags(&["--workspace"]).flags(&[&self.source]).command(argv);
        for (name, value) in VARIABLES {
            run = run.flags(&["--env", &format!("{name}={value}")]);
        }
        if let Some(visitor) = visitor {
            run = run.by(visitor);
        }
        start(run.build().current_dir(&self.source), vec![], HARD_STOP).finish()
    }
}

/// Calls `visit` for everything at and below `path`, without following links.
fn each(path: &Path, visit: &mut dyn FnMut(&Path, &fs::Metadata)) {
    let facts = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    visit(path, &facts);
    if facts.is_dir() {
        for entry in fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry")) {
            each(&entry.path(), visit);
        }
    }
}

/// Output without what differs from run to run: durations and addresses.
fn settled(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().map(|line| match line.split_once(" tests in ") {
        Some((count, _)) => format!("{count} tests"),
        None => without_addresses(line),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn without_addresses(line: &str) -> String {
    let mut parts = line.split("0x");
    let first = parts.next().unwrap_or("").to_string();
    parts.fold(first, |text, part| {
        text + "0x" + part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit())
    })
}

/// What a run came to, to be compared.
#[derive(PartialEq, Debug)]
struct Result {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn result(finished: &FinishedProcess) -> Result {
    Result { code: finished.code(), stdout: settled(&finished.stdout), stderr: settled(&finished.stderr) }
}

/// Runs the project outside, then inside for each owner, and compares.
fn compare(project: &Project, checkout: &mut Checkout, visitor: Option<&Visitor>, argv: &[&str]) {
    let by = visitor.map_or(0, |visitor| visitor.user);
    checkout.renew(by);
    let before = checkout.files();
    let outside = result(&checkout.outside(argv));
    let (made, products) = (checkout.files(), checkout.products(project));
    assert_eq!(outside.code, Some(0), "outside: {outside:?}");
    let printed = format!("{}{}", outside.stdout, outside.stderr);
    assert!(printed.contains(project.passed) && made > before, "no '{}' in {printed}", project.passed);
    let owners: &[u32] = if by == 0 { &[0, USER] } else { &[USER] };
    for &owner in owners {
        checkout.renew(owner);
        let inside = result(&checkout.inside(visitor, argv));
        let case = format!("{} by {by} in a directory of {owner}'s", project.name);
        assert_eq!(inside, outside, "{case}: inside (left), outside (right)");
        assert_eq!(checkout.files(), made, "{case}: files there afterwards");
        assert!(checkout.products(project) == products, "{case}: a built file differs");
        assert_eq!(checkout.strangers(), Vec::<String>::new(), "{case}: files that are not the owner's");
    }
}

/// Fetches, waits for its turn, and does `body`.
fn with(test: &'static str, project: &Project, body: impl FnOnce(&mut Checkout)) {
    let Some(archive) = archive(project) else {
        let note = format!("{test}: left out: SANDTIMER_OFFLINE=1 and {} was never fetched\n", project.name);
        // Not lost to the capturing of tests' output.
        std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes()).expect("stderr");
        return;
    };
    let _alone = alone(test, Duration::from_secs(300));
    body(&mut Checkout::new(&archive));
}

#[test]
fn a_python_projects_tests_pass_inside_as_outside() {
    with("python project", &PYTHON, |checkout| {
        compare(&PYTHON, checkout, None, &["python3", "-m", "unittest"]);
        // Not the python3 of the system where the caller's PATH leads elsewhere, a shim under a
        // closed home included.
        let which = ["python3", "-c", "import sys; print(sys.executable, sys.prefix)"];
        let (inside, outside) = (checkout.inside(None, &which), {
            checkout.renew(0);
            checkout.outside(&which)
        });
        assert_eq!(inside.text(), outside.text(), "{}", inside.errors());
    });
}

#[test]
fn a_c_project_builds_inside_to_the_same_bytes() {
    with("C project", &C, |checkout| compare(&C, checkout, None, &["make"]));
}

#[test]
fn a_python_projects_tests_pass_without_root() {
    with("python project, rootless", &PYTHON, |checkout| {
        let visitor = Visitor::new(USER);
        compare(&PYTHON, checkout, Some(&visitor), &["/usr/bin/python3", "-m", "unittest"]);
    });
}

#[test]
fn a_c_project_builds_without_root_to_the_same_bytes() {
    with("C project, rootless", &C, |checkout| {
        let visitor = Visitor::new(USER);
        compare(&C, checkout, Some(&visitor), &["/usr/bin/make"]);
    });
}

/// A command can give neither a file nor a directory of another owner away, nor take it.
#[test]
fn files_of_others_stay_theirs() {
    with("others' files", &C, |checkout| {
        checkout.renew(USER);
        let other = checkout.source.join("README");
        std::os::unix::fs::chown(&other, Some(4321), Some(4321)).expect("root");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).expect("own file");
        let script = "stat -c %u README; cat README >copy; echo x >>README; chown $(id -u) README; chmod 777 README; \
                      chown 4321 copy; rm -f CHANGES; stat -c %u copy";
        let finished = checkout.inside(None, &["sh", "-c", script]);
        let printed = finished.text();
        let ids: Vec<&str> = printed.lines().collect();
        let facts = fs::metadata(&other).expect("still there");
        assert_eq!((facts.uid(), facts.mode() & 0o777), (4321, 0o644), "{}", finished.errors());
        assert_eq!(ids.first(), Some(&"4321"), "{printed}{}", finished.errors());
        assert_eq!(fs::metadata(checkout.source.join("copy")).expect("made").uid(), USER);
        assert_eq!(fs::read(checkout.source.join("copy")).expect("made"), fs::read(&other).expect("kept"));
        assert!(!checkout.source.join("CHANGES").exists(), "its own it may remove");
    });
}
