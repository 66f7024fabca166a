//! Files of jobs with real processes: what they are given, what is kept of what they leave, and
//! what is left in their way.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::Engine;
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{
    FileOf, JobRecord, JobResult, JobSpec, JobState, JobStatus, JobStore, MAX_JOB_FILES, Submission, digest,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tempfile::TempDir;

/// After this a test has failed.
const HARD_STOP: Duration = Duration::from_secs(120);

struct FinishedJob {
    _directory: TempDir,
    store: Arc<dyn JobStore>,
    record: JobRecord,
    result: JobResult,
}

impl FinishedJob {
    fn read(&self, name: &str) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let read = self.store.read_file(
                &self.record.line.id,
                FileOf::Output(name),
                content.len() as u64,
                300_000,
            );
            let piece = read.expect("readable");
            if piece.is_empty() {
                return content;
            }
            content.extend(piece);
        }
    }

    fn names(&self) -> Vec<&str> {
        self.result.files.iter().map(|file| file.name.as_str()).collect()
    }

    /// Why a file is not kept.
    fn rejection_reason(&self, name: &str) -> &str {
        let found = self.result.files_refused.iter().find(|refused| refused.name == name);
        &found.unwrap_or_else(|| panic!("{name} is not refused: {:?}", self.result)).reason
    }
}

fn over(store: &dyn JobStore, id: &str) -> JobRecord {
    let begun = monotonic_nanoseconds();
    loop {
        let record = store.get(id).expect("readable").expect("there");
        if record.line.state.is_over() {
            return record;
        }
        assert!(monotonic_nanoseconds() - begun < HARD_STOP.as_nanos() as u64, "never over: {record:?}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// One job, with a limit of the bytes that are kept.
fn run(source: Value, most: u64) -> FinishedJob {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let resources =
        WorkerContext::new(Engine::new().expect("an engine"), Arc::clone(&store), directory.path());
    let settings = WorkerSettings::new(|problem| panic!("{problem}"));
    let worker = Worker::new(WorkerContext { max_file_bytes: most, ..resources }, settings);
    let spec = JobSpec::read(source).expect("a valid spec");
    let id = store.submit(&[Submission { spec, owner: "test".to_owned() }]).expect("submitted").remove(0).id;
    let record = std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let record = over(&*store, &id);
        worker.drain();
        record
    });
    let left = std::fs::read_dir(directory.path().join("job-files")).expect("readable").count();
    assert_eq!(left, 0, "the directories of jobs and of the worker are gone");
    let result = record.result.clone().expect("a result");
    FinishedJob { _directory: directory, store, record, result }
}

fn shell(script: &str, more: Value) -> Value {
    let mut source = json!({"command": ["sh", "-c", script]});
    source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    source
}

#[test]
fn steps_hand_files_to_each_other_and_what_is_asked_for_is_kept() {
    let step = |name: &str, script: &str| json!({"name": name, "command": ["sh", "-c", script]});
    let finished = run(
        json!({
            "inputs": {"words.txt": "b\na\n", "data/raw": {"base64": "AP8="}},
            "outputs": ["sorted", "out/**/*.txt", "data/raw"],
            "steps": [
                step("sort", "sort words.txt > sorted && mkdir -p out/deep && pwd > out/where.txt"),
                step("use", "cat sorted > out/deep/copy.txt; echo no > out/deep/copy.log; ls -ld . words.txt >> out/where.txt"),
            ],
        }),
        1 << 20,
    );
    assert_eq!(finished.result.status, JobStatus::Ok, "{:?}", finished.result);
    assert_eq!(finished.names(), ["sorted", "out/deep/copy.txt", "out/where.txt", "data/raw"]);
    assert_eq!(finished.result.files_refused, []);
    assert_eq!((finished.read("sorted"), finished.read("data/raw")), (b"a\nb\n".to_vec(), vec![0, 255]));
    assert_eq!(finished.result.files[0].sha256, digest(b"a\nb\n"));
    let content = String::from_utf8(finished.read("out/where.txt")).expect("text");
    assert!(content.starts_with("/workspace\n"), "{content}");
    assert!(finished.read("out/deep/copy.log").is_empty(), "nobody asked for it");
}

#[test]
fn what_was_made_is_kept_when_the_job_fails_or_is_out_of_time() {
    let failed = run(shell("echo half > out; exit 3", json!({"outputs": ["out"]})), 1 << 20);
    assert_eq!((failed.result.status, failed.read("out")), (JobStatus::Failed, b"half\n".to_vec()));
    let late =
        run(shell("echo half > out; sleep 600", json!({"outputs": ["out"], "wall_ms": 1_500})), 1 << 20);
    assert_eq!((late.result.status, late.read("out")), (JobStatus::Timeout, b"half\n".to_vec()));
    assert_eq!(late.result.outcome.as_ref().expect("an outcome").tree.survivors, Some(0));
}

#[test]
fn a_large_file_comes_back_whole() {
    let script = "seq 1 200000 > numbers; sha256sum numbers | cut -d' ' -f1";
    let finished = run(shell(script, json!({"outputs": ["numbers"]})), 4 << 20);
    let content = finished.read("numbers");
    let [file] = &finished.result.files[..] else { panic!("{:?}", finished.result) };
    assert_eq!((file.bytes, content.len()), (1_288_895, 1_288_895));
    let printed_digest = finished.result.outcome.as_ref().expect("an outcome").stdout.trim().to_owned();
    assert_eq!((file.sha256.as_str(), digest(&content)), (printed_digest.as_str(), printed_digest.clone()));
}

#[test]
fn no_link_is_followed_and_nothing_that_is_no_file_is_opened() {
    let script = "ln -s /etc/passwd link; ln -s /etc linked; mkfifo fifo; mkdir dir; echo x > dir/x; \
        ln -s dir inner; echo secret > shut; chmod 000 shut; mkdir closed; echo y > closed/y; chmod 000 closed; echo ok > good";
    let outputs = json!([
        "link",
        "linked/passwd",
        "inner/x",
        "fifo",
        "dir",
        "absent",
        "shut",
        "closed/*",
        "nothing/*.csv",
        "good",
        "*"
    ]);
    let finished = run(shell(script, json!({"outputs": outputs})), 1 << 20);
    assert_eq!(finished.result.status, JobStatus::Ok, "{:?}", finished.result);
    assert_eq!(finished.names(), ["good"]);
    for (name, reason) in [
        ("link", "is a symbolic link"),
        ("linked/passwd", "is reached through a symbolic link"),
        ("inner/x", "is reached through a symbolic link"),
        ("fifo", "is a FIFO, a socket or a device"),
        ("dir", "is a directory; its files are named `dir/**`"),
        ("absent", "is not there"),
        ("shut", "its mode"),
        ("closed/*", "its mode"),
        ("nothing/*.csv", "nothing is there that it names"),
        // Found by `*`.
        ("linked", "is a symbolic link"),
    ] {
        assert!(
            finished.rejection_reason(name).contains(reason),
            "{name}: {}",
            finished.rejection_reason(name)
        );
    }
}

#[test]
fn bounds_are_kept_and_what_is_beyond_them_is_named() {
    let script = format!(
        "mkdir many; cd many; for i in $(seq 1 {}); do : > $i; done; cd ..; head -c 3000 /dev/zero > big; \
         truncate -s 1T sparse; head -c 500 /dev/zero > small; mkdir -p $(yes d | head -40 | tr '\\n' '/')",
        MAX_JOB_FILES + 150
    );
    let finished = run(shell(&script, json!({"outputs": ["big", "sparse", "small", "**"]})), 2_000);
    assert_eq!(finished.result.files.len(), MAX_JOB_FILES);
    assert_eq!(finished.result.files[0].name, "small");
    assert!(
        finished.rejection_reason("big").contains("has 2.9 KiB, of the 2.0 KiB that are kept"),
        "{}",
        finished.rejection_reason("big")
    );
    assert!(finished.rejection_reason("sparse").contains("1 TiB"), "{}", finished.rejection_reason("sparse"));
    assert!(finished.rejection_reason(&["d"; 32].join("/")).contains("deeper than 32"));
    // All that is not kept is counted: the others of many, and these three.
    assert_eq!(finished.result.files_refused.len(), 101);
    assert_eq!(
        finished.rejection_reason("…"),
        format!("{} more are not kept", MAX_JOB_FILES + 150 - (MAX_JOB_FILES - 1) + 3 - 100)
    );
}

#[test]
fn files_of_dead_worker_are_removed_and_of_live_one_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = directory.path().join("job-files");
    std::fs::create_dir_all(files.join("dead/job-1")).expect("made");
    std::fs::create_dir_all(files.join("living/job-2")).expect("made");
    std::fs::write(files.join("dead/job-1/file"), "x").expect("written");
    if let Some(owner) = sandtimer::engine::workspace_owner() {
        for path in ["dead/job-1", "dead/job-1/file"] {
            std::os::unix::fs::chown(files.join(path), Some(owner), Some(owner)).expect("given");
        }
    }
    let living = std::fs::File::open(files.join("living")).expect("opened");
    rustix::fs::flock(&living, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let engine = Engine::new().expect("an engine");
    let worker = Worker::new(
        WorkerContext::new(engine, store, directory.path()),
        WorkerSettings::new(|problem| panic!("{problem}")),
    );
    worker.drain();
    worker.work();
    let there = |path: &str| Path::new(&files).join(path).exists();
    assert!(!there("dead") && there("living/job-2"));
}

#[test]
fn worker_without_files_directory_returns_jobs_with_files() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("job-files"), "in the way").expect("written");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let resources =
        WorkerContext::new(Engine::new().expect("an engine"), Arc::clone(&store), directory.path());
    let worker = Worker::new(resources, WorkerSettings::new(|problem| panic!("{problem}")));
    let submit = |source: Value| {
        let spec = JobSpec::read(source).expect("valid");
        store.submit(&[Submission { spec, owner: "test".to_owned() }]).expect("submitted").remove(0).id
    };
    let with = submit(json!({"command": ["true"], "outputs": ["a"], "deliveries": 2}));
    let without = submit(json!({"command": ["true"]}));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let (with, without) = (over(&*store, &with), over(&*store, &without));
        worker.drain();
        assert_eq!((with.line.state, without.line.ok), (JobState::Dead, Some(true)));
        assert!(with.line.error.expect("a message").contains("no place for the files of jobs"));
    });
}
