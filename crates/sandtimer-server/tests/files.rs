//! Files of workspaces over HTTP: what can be done, what is refused by name, and what an attacker
//! in the workspace cannot do.

use crate::support;

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::json;
use support::workspace::{Workspace, paths};
use support::{ServerFixture, raw, read_to_end};

#[test]
fn files_are_written_read_listed_moved_and_deleted() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let (status, refused) = workspace.put("a/b/c", b"x");
    assert_eq!((status, &refused["code"]), (404, &json!("file_not_found")));
    assert_eq!(workspace.put("a/b/c&parents=true&mode=0750", b"0123456789").0, 200);
    let (_, entry) = workspace.client.get(&workspace.at("/stat", "path=a/b/c"));
    assert_eq!(
        (&entry["type"], &entry["size"], &entry["mode"]),
        (&json!("file"), &json!(10), &json!("0750"))
    );
    assert_eq!(workspace.put("a/b/c&create_only=true", b"y").1["code"], "file_exists");
    assert_eq!(workspace.put("a/b/c&mode=4755", b"y").1["code"], "bad_field");
    assert_eq!(workspace.put("a/b/c", b"0123456789").0, 200);
    assert_eq!(
        workspace.client.get(&workspace.at("/stat", "path=a/b/c")).1["mode"],
        "0750",
        "it keeps its mode"
    );
    for (query, headers, status, bytes) in [
        ("", &[][..], 200, &b"0123456789"[..]),
        ("&offset=3&length=4", &[], 206, b"3456"),
        ("&offset=8", &[], 206, b"89"),
        ("", &[("Range", "bytes=-2")], 206, b"89"),
        ("", &[("Range", "bytes=2-3")], 206, b"23"),
    ] {
        let path = workspace.at("", &format!("path=a/b/c{query}"));
        assert_eq!(workspace.client.bytes(&path, headers), (status, bytes.to_vec()), "{query} {headers:?}");
    }
    assert_eq!(workspace.client.get(&workspace.at("", "path=a/b/c&offset=11")).1["code"], "range_outside");
    let append = workspace.at("/append", "path=a/b/c");
    assert_eq!(workspace.client.post_bytes(&append, b"ab").1["size"], 12);
    let no = workspace.client.post_bytes(&workspace.at("/append", "path=none&create=false"), b"ab");
    assert_eq!(no.1["code"], "file_not_found");
    assert_eq!(workspace.post("mkdir", json!({"path": "d/e", "parents": true})).1["type"], "directory");
    assert_eq!(workspace.post("mkdir", json!({"path": "d/e", "parents": true})).0, 200);
    assert_eq!(workspace.post("mkdir", json!({"path": "d/e"})).1["code"], "file_exists");
    assert_eq!(paths(&workspace.list("recursive=true")), ["a", "a/b", "a/b/c", "d", "d/e"]);
    assert_eq!(paths(&workspace.list("path=a")), ["a/b"]);
    // Page by page it is the same.
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = workspace.list(&format!("recursive=true&limit=2{after}"));
        all.extend(paths(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next_after"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all, ["a", "a/b", "a/b/c", "d", "d/e"]);
    assert_eq!(workspace.post("move", json!({"from": "a/b/c", "to": "d/c"})).1["path"], "d/c");
    workspace.put("f", b"f");
    assert_eq!(workspace.post("move", json!({"from": "f", "to": "d/c"})).1["code"], "file_exists");
    assert_eq!(workspace.post("move", json!({"from": "f", "to": "d/c", "overwrite": true})).0, 200);
    assert_eq!(workspace.post("move", json!({"from": "d", "to": "d/e/d"})).0, 400);
    assert_eq!(workspace.read("d/c").1, b"f");
    let delete = |query: &str| workspace.client.delete(&workspace.at("", query));
    assert_eq!(delete("path=d").1["code"], "directory_not_empty");
    assert_eq!(delete("path=d&recursive=true").0, 204);
    assert_eq!((delete("path=d").0, delete("path=.").0), (404, 409));
    assert_eq!(paths(&workspace.list("recursive=true")), ["a", "a/b"]);
}

#[test]
fn names_that_are_none_are_refused() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let long = "x".repeat(5_000);
    for (path, code) in [
        ("..", "path_outside"),
        ("a/../../b", "path_outside"),
        ("/etc/passwd", "path_outside"),
        ("/workspace/../etc/passwd", "path_outside"),
        ("%2e%2e/x", "path_outside"),
        ("a%00b", "nul_byte"),
        ("", "bad_field"),
        ("a%ff", "bad_field"),
        (long.as_str(), "too_long"),
    ] {
        assert_eq!(workspace.rejection_codes(path), [code; 3], "{path:.40}");
    }
    for (status, answer) in [
        workspace.client.get(&format!("/v1/files/list?workspace={}&context=x", workspace.id)),
        workspace.client.get("/v1/files/list"),
        workspace.client.get(&workspace.at("/list", "limit=0")),
        workspace.client.get(&workspace.at("/list", "limit=99999")),
        workspace.client.get(&workspace.at("/list", "unknown=1")),
        workspace.post("move", json!({"from": "a"})),
        workspace.post("move", json!({"from": 1, "to": "b"})),
        workspace.post("mkdir", json!({"path": "x\0y"})),
    ] {
        assert_eq!(status, 400, "{answer}");
    }
    assert!(paths(&workspace.list("")).is_empty());
}

#[test]
fn what_is_no_file_is_refused_without_waiting_for_it() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh(
        "mkfifo fifo; mkdir d; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'",
    );
    for path in ["fifo", "socket", "d", "d/../fifo"] {
        let code = if path.contains("..") { "path_outside" } else { "wrong_file_type" };
        assert_eq!(workspace.rejection_codes(path), [code; 3], "{path}");
    }
    assert_eq!(workspace.client.get(&workspace.at("/list", "path=fifo")).1["code"], "wrong_file_type");
    let listing = workspace.list("");
    let types: Vec<&str> = listing["entries"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["type"].as_str())
        .collect();
    assert_eq!(types, ["directory", "fifo", "socket"]);
}

#[test]
fn links_resolve_inside_the_workspace_only() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let outside = serving.state.path().join("outside");
    std::fs::write(&outside, "secret").expect("written");
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o666)).expect("set");
    workspace.sh("mkdir d; echo in >d/f; ln -s d/f in; ln -s ../d/./f d/up; ln -s d dir; ln -s loop loop; ln -s new dangling");
    workspace.sh("ln -s ../../../outside out; ln -s /etc/passwd absolute; ln -s /workspace/d/f self; ln -s ../../.. parent; ln -s /proc/self/root magic");
    for path in ["in", "d/up", "dir/f"] {
        assert_eq!(workspace.read(path), (200, b"in\n".to_vec()), "{path}");
    }
    assert_eq!(workspace.put("in", b"written").0, 200);
    assert_eq!(workspace.read("d/f").1, b"written");
    assert_eq!(
        workspace.client.get(&workspace.at("/stat", "path=in")).1["target"],
        "d/f",
        "the link is still one"
    );
    assert_eq!(workspace.put("dangling", b"made").0, 200);
    assert_eq!(workspace.read("new").1, b"made");
    for path in ["out", "absolute", "loop", "parent/outside", "magic/etc/passwd"] {
        assert_eq!(workspace.rejection_codes(path), ["path_outside"; 3], "{path}");
    }
    for (what, body) in [
        ("move", json!({"from": "d/f", "to": "parent/moved"})),
        ("move", json!({"from": "parent/outside", "to": "stolen"})),
        ("mkdir", json!({"path": "parent/made"})),
        ("mkdir", json!({"path": "parent/made/more", "parents": true})),
    ] {
        assert_eq!(workspace.post(what, body.clone()).1["code"], "path_outside", "{body}");
    }
    assert_eq!(workspace.client.get(&workspace.at("/list", "path=parent")).1["code"], "path_outside");
    assert_eq!(workspace.client.delete(&workspace.at("", "path=parent/outside")).1["code"], "path_outside");
    // A link is removed, not what it names.
    assert_eq!(workspace.client.delete(&workspace.at("", "path=out&recursive=true")).0, 204);
    assert_eq!(std::fs::read_to_string(&outside).expect("still there"), "secret");
    assert!(!paths(&workspace.list("recursive=true")).iter().any(|path| path.starts_with("parent/")));
}

#[test]
fn absolute_links_below_workspace_are_followed_in_it() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    std::fs::write(serving.state.path().join("outside"), "secret").expect("written");
    workspace.sh(
        "mkdir -p d/e; echo in >d/f; ln -s /workspace/d/f file; ln -s /workspace/d directory; ln -s /workspace/directory/e/../f through; \
         ln -s /workspace top; ln -s /workspace/new dangling; ln -s ../../file d/e/up; ln -s /workspace/d/e/up chain",
    );
    for path in ["file", "directory/f", "through", "top/d/f", "top/top/directory/f", "d/e/../../file"] {
        let expected = if path.contains("..") { 403 } else { 200 };
        assert_eq!(workspace.read(path).0, expected, "{path}");
    }
    assert_eq!(workspace.read("file"), (200, b"in\n".to_vec()));
    assert_eq!(workspace.read("chain").1, workspace.read("d/e/up").1);
    assert_eq!(workspace.put("through", b"written").0, 200);
    assert_eq!(workspace.read("d/f").1, b"written");
    assert_eq!(workspace.put("dangling", b"made").0, 200);
    assert_eq!(workspace.read("new").1, b"made");
    assert_eq!(workspace.put("directory/g/h&parents=true", b"deep").0, 200);
    assert_eq!(workspace.read("d/g/h").1, b"deep");
    let append = workspace.at("/append", "path=directory/g/h");
    assert_eq!(workspace.client.post_bytes(&append, b"er").1["size"], 6);
    assert_eq!(paths(&workspace.list("path=directory")), ["directory/e", "directory/f", "directory/g"]);
    assert_eq!(workspace.post("mkdir", json!({"path": "directory/made"})).0, 200);
    assert_eq!(workspace.post("move", json!({"from": "directory/made", "to": "top/moved"})).0, 200);
    let (_, entry) = workspace.client.get(&workspace.at("/stat", "path=file"));
    assert_eq!((&entry["type"], &entry["target"]), (&json!("symlink"), &json!("/workspace/d/f")));
    // A link is removed, not what it names.
    assert_eq!(workspace.client.delete(&workspace.at("", "path=directory")).0, 204);
    assert_eq!(workspace.read("d/f").1, b"written");
    workspace.sh(
        "ln -s /workspace/../outside up; ln -s /workspaces/x other; ln -s /workspace/loop loop; ln -s /workspace/etc chained; ln -s /etc etc; \
         ln -s /workspace/../../../outside far; ln -s /workspace/top/../../outside around",
    );
    for path in ["up", "other", "loop", "chained/passwd", "far", "around"] {
        assert_eq!(workspace.rejection_codes(path), ["path_outside"; 3], "{path}");
    }
}

/// The target of the attack: a file next to the workspace that every user may read and write.
struct Treasure {
    directory: PathBuf,
}

impl Treasure {
    fn create_next_to(workspace: &Workspace<'_>) -> Self {
        let directory = workspace.serving.state.path().join("treasure");
        std::fs::create_dir(&directory).expect("made");
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).expect("set");
        let treasure = Treasure { directory };
        std::fs::write(treasure.directory.join("f"), "treasure").expect("written");
        std::fs::set_permissions(treasure.directory.join("f"), std::fs::Permissions::from_mode(0o666))
            .expect("set");
        treasure
    }

    fn is_untouched(&self) -> bool {
        let names = std::fs::read_dir(&self.directory).expect("a directory").count();
        names == 1 && std::fs::read(self.directory.join("f")).expect("a file") == b"treasure"
    }
}

/// Swaps a directory for a link to the treasure and back (RENAME_EXCHANGE), until the file `stop`
/// exists.
const SWAPPER: &str = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nos.mkdir('d')\n\
    open('d/f', 'w').write('harmless')\nos.symlink('../../../treasure', 'link')\nopen('ready', 'w').close()\n\
    while not os.path.exists('stop'):\n    for _ in range(1001):\n        assert libc.renameat2(-100, b'd', -100, b'link', 2) == 0\n";

#[test]
fn a_run_that_swaps_directories_for_links_never_leads_outside() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let treasure = Treasure::create_next_to(&workspace);
    let swapping =
        json!({"code": SWAPPER, "language": "python", "workspace": workspace.id, "wall_ms": 25_000});
    let id = workspace.client.start(swapping);
    while workspace.client.get(&workspace.at("/stat", "path=ready")).0 != 200 {}
    // The negative control: a program with these rights that opens the path by its name is led
    // outside.
    let by_name = (0..200_000)
        .any(|_| std::fs::read(workspace.directory().join("d/f")).is_ok_and(|read| read == b"treasure"));
    assert!(by_name, "the attack works where nothing stops it");
    let (mut inside, mut refused) = (0, 0);
    for round in 0..400 {
        let (status, read) = workspace.read("d/f");
        assert_ne!(read, b"treasure");
        assert!(status < 500, "{}", String::from_utf8_lossy(&read));
        match status {
            200 => inside += 1,
            _ => refused += 1,
        }
        let answers = [
            workspace.put("d/f", b"overwritten"),
            workspace.put(&format!("d/n{round}&parents=true"), b"x"),
            workspace.client.post_bytes(&workspace.at("/append", "path=d/f"), b"appended"),
            workspace.post("mkdir", json!({"path": format!("d/m{round}/x"), "parents": true})),
            workspace.post("move", json!({"from": format!("d/n{round}"), "to": format!("d/o{round}")})),
            workspace.client.get(&workspace.at("/list", "path=d&recursive=true")),
            workspace.client.delete(&workspace.at("", &format!("path=d/m{round}&recursive=true"))),
        ];
        for (status, answer) in answers {
            assert!(status < 500, "{status} {answer}");
        }
    }
    assert!(treasure.is_untouched());
    assert!(inside > 0 && refused > 0, "both were met: {inside} {refused}");
    workspace.put("stop", b"");
    assert_eq!(workspace.client.ended(&id)["outcome"]["exit_code"], 0);
    // With the attack at rest in its worst place.
    workspace.sh("ln -sfn ../../../treasure rest");
    assert_eq!(workspace.rejection_codes("rest/f"), ["path_outside"; 3]);
    assert_eq!(workspace.client.delete(&format!("/v1/workspaces/{}", workspace.id)).0, 204);
    assert!(treasure.is_untouched());
}

#[test]
fn api_uses_the_rights_of_the_files_owner() {
    if !rustix::process::geteuid().is_root() {
        // The server's user is the files' owner then.
        return;
    }
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    // A file of root's that was put there from outside; a hard link to one would be the same.
    let roots = workspace.directory().join("roots");
    std::fs::write(&roots, "root's").expect("written");
    std::fs::set_permissions(&roots, std::fs::Permissions::from_mode(0o600)).expect("set");
    let locked = workspace.directory().join("locked");
    std::fs::create_dir(&locked).expect("made");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o755)).expect("set");
    assert!(std::fs::read(&roots).is_ok(), "the server itself could");
    assert_eq!(workspace.client.get(&workspace.at("", "path=roots")).1["code"], "file_permission");
    assert_eq!(
        workspace.client.post_bytes(&workspace.at("/append", "path=roots"), b"x").1["code"],
        "file_permission"
    );
    assert_eq!(workspace.put("locked/x", b"x").1["code"], "file_permission");
    workspace.sh("echo mine >shut; chmod 0 shut");
    assert_eq!(workspace.client.get(&workspace.at("", "path=shut")).1["code"], "file_permission");
    // What is written belongs to the workspace, without set-id bits, whatever was there.
    // A run cannot set these bits.
    workspace.sh("echo x >set");
    let set = workspace.directory().join("set");
    std::fs::set_permissions(&set, std::fs::Permissions::from_mode(0o6755)).expect("set");
    assert_eq!(workspace.put("set", b"y").0, 200);
    assert_eq!(workspace.client.get(&workspace.at("/stat", "path=set")).1["mode"], "0755");
    workspace.sh("test -O set && echo z >>set");
}

#[test]
fn a_sparse_file_streams_and_one_that_shrinks_ends() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("truncate -s 10G sparse; truncate -s 3G shrinking");
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("read");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
        line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).expect("a number")
    };
    let request = |path: &str| {
        format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", workspace.at("", &format!("path={path}")))
    };
    let mut stream = raw(serving.address, request("sparse").as_bytes());
    let (mut buffer, mut total, before) = (vec![0; 1 << 20], 0u64, peak());
    while total < 2 << 30 {
        total += stream.read(&mut buffer).expect("more") as u64;
    }
    assert!(peak() < before + 200_000, "{before} {} kB", peak());
    drop(stream);
    let tail = workspace.at("", "path=sparse&offset=10737418200");
    assert_eq!(workspace.client.bytes(&tail, &[]), (206, vec![0; 40]));
    let mut stream = raw(serving.address, request("shrinking").as_bytes());
    stream.read_exact(&mut buffer).expect("its beginning");
    workspace.sh("truncate -s 1M shrinking");
    let mut rest = 0u64;
    // A reset is an end, too.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        rest += length as u64;
    }
    assert!(rest < 3 << 30, "it ended, after {rest} bytes more");
    assert_eq!(workspace.read("shrinking").1.len(), 1 << 20);
}

#[test]
fn uploads_are_whole_or_nothing_and_bounded() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.put("f", b"before");
    let head = |length: u64| {
        format!(
            "PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n",
            workspace.at("", "path=f")
        )
    };
    let answer = read_to_end(raw(serving.address, head(10 << 30).as_bytes()));
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("file_too_large"), "{answer}");
    let stream = raw(serving.address, format!("{}half of it", head(1_000_000)).as_bytes());
    stream.shutdown(std::net::Shutdown::Write).expect("shut");
    read_to_end(stream);
    assert_eq!(workspace.read("f").1, b"before");
    // What was written aside goes.
    while paths(&workspace.list("")) != ["f"] {}
    let big: Vec<u8> = (0..20_000_000u32).map(|number| number as u8).collect();
    assert_eq!(workspace.put("f", &big).1["size"], 20_000_000);
    assert_eq!(workspace.read("f").1, big);
    // While the file is being replaced a reader gets one version or the other.
    std::thread::scope(|scope| {
        let writer = scope
            .spawn(|| (0..40).for_each(|round| assert_eq!(workspace.put("f", &vec![round; 100_000]).0, 200)));
        while !writer.is_finished() {
            let (status, read) = workspace.read("f");
            assert_eq!(status, 200);
            assert!(read == big || (read.len() == 100_000 && read.iter().all(|byte| *byte == read[0])));
        }
    });
}

#[test]
fn non_utf8_names_are_shown_and_do_not_stop_a_listing() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir d; touch d/$'\\xfe' d/$'\\xff' d/a d/z");
    assert_eq!(paths(&workspace.list("path=d")), ["d/a", "d/z", "d/\u{fffd}", "d/\u{fffd}"]);
    let (mut pages, mut after, mut incomplete) = (0, String::new(), false);
    loop {
        let page = workspace.list(&format!("path=d&limit=1{after}"));
        (pages, incomplete) = (pages + 1, incomplete || page["incomplete"] == true);
        let Some(next) = page["next_after"].as_str() else { break };
        after = format!("&after={}", next.replace('\u{fffd}', "%EF%BF%BD"));
        assert!(pages < 10, "it ends");
    }
    assert!(incomplete, "one of two that read the same was passed over, and this was said");
    assert_eq!(workspace.client.delete(&workspace.at("", "path=d&recursive=true")).0, 204);
}

#[test]
fn very_deep_directories_are_listed_in_part_and_deleted() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let dig = "import os\nfor _ in range(3000):\n    os.mkdir('d' * 100)\n    os.chdir('d' * 100)\nopen('x', 'w').close()\nos.chmod('.', 0)";
    let run = workspace.client.run(&json!({"code": dig, "language": "python", "workspace": workspace.id}));
    assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
    let listing = workspace.list("recursive=true");
    assert_eq!((paths(&listing).len(), &listing["incomplete"]), (64, &json!(true)));
    assert_eq!(
        workspace.client.delete(&workspace.at("", &format!("path={}&recursive=true", "d".repeat(100)))).0,
        204
    );
    assert!(paths(&workspace.list("")).is_empty());
}

#[test]
fn changes_are_reported_as_they_happen() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let mut events = workspace.client.events_at(&workspace.at("/watch", ""), &[]);
    assert_eq!(events.next().expect("an event").name, "ready");
    workspace.sh("echo x >a; mv a b; rm b; mkdir d");
    let mut observed = Vec::new();
    for event in events.by_ref() {
        let last = event.name == "created" && event.data["path"] == "d";
        observed.push(format!("{} {}", event.name, event.data["path"].as_str().unwrap_or_default()));
        if last {
            assert_eq!(event.data["directory"], true);
            break;
        }
    }
    for wanted in ["created a", "modified a", "moved_from a", "moved_to b", "deleted b", "created d"] {
        assert!(observed.iter().any(|event| event == wanted), "{wanted}: {observed:?}");
    }
    drop(events);
    let mut events = workspace.client.events_at(&workspace.at("/watch", "path=d"), &[]);
    events.next();
    workspace.sh("rmdir d");
    assert!(events.next().is_none(), "it ends with its directory");
    symlink("/etc", workspace.directory().join("etc")).expect("made");
    assert_eq!(workspace.client.get(&workspace.at("/watch", "path=etc")).1["code"], "path_outside");
}

#[test]
fn an_append_that_does_not_fit_leaves_the_file_as_it_was() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.put("f", &[b'a'; 1000]);
    let append = workspace.at("/append", "path=f");
    let before = getrlimit(Resource::Fsize);
    // As on a disk that is full: a part is taken, and then nothing.
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..before }).expect("set");
    let (status, refused) = workspace.client.post_bytes(&append, &vec![b'b'; 2 << 20]);
    setrlimit(Resource::Fsize, before).expect("set");
    assert!((400..600).contains(&status), "{refused}");
    assert_eq!(refused["details"]["appended_bytes"], 0, "{refused}");
    assert!(refused["message"].as_str().expect("a text").ends_with("nothing was appended"), "{refused}");
    assert_eq!(workspace.read("f").1, [b'a'; 1000]);
    assert_eq!(workspace.client.post_bytes(&append, b"b").1["size"], 1001);
}

#[test]
fn wide_directory_is_listed_completely_and_sorted() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir d; cd d; seq -f '%05g' 0 4999 | xargs touch; mkdir 02500.d; touch 02500.d/x");
    let mut expected: Vec<String> = (0..5_000).map(|number| format!("d/{number:05}")).collect();
    expected.splice(2_501..2_501, ["d/02500.d".to_owned(), "d/02500.d/x".to_owned()]);
    for (limit, query) in [(10_000, "path=d"), (999, "path=d"), (1_000, "path=d"), (777, "")] {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = workspace.list(&format!("{query}&recursive=true&limit={limit}{after}"));
            assert_eq!(page["incomplete"], false);
            all.extend(paths(&page).into_iter().filter(|path| *path != "d").map(str::to_owned));
            let Some(next) = page["next_after"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(all, expected, "{limit}");
    }
}
