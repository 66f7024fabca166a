//! Directories as tar archives over HTTP: what comes back as it was, and what an archive cannot do.

use crate::support;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::workspace::{Workspace, paths};
use support::{ServerFixture, raw};
use tar::{Archive, Builder, EntryType, Header};

fn pack(workspace: &Workspace<'_>, query: &str) -> Vec<u8> {
    let (status, archive) = workspace.client.bytes(&workspace.at("/tar", query), &[]);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&archive));
    archive
}

fn unpack(workspace: &Workspace<'_>, query: &str, archive: &[u8]) -> (u16, Value) {
    workspace.client.put(&workspace.at("/tar", query), archive)
}

/// A member as an attacker writes it: no name or target is too strange for it.
struct RawMember<'a> {
    kind: EntryType,
    name: &'a [u8],
    target: &'a [u8],
    content: &'a [u8],
}

impl<'a> RawMember<'a> {
    fn file(name: &'a str) -> Self {
        RawMember { kind: EntryType::Regular, name: name.as_bytes(), target: b"", content: b"x" }
    }

    fn link(kind: EntryType, name: &'a str, target: &'a str) -> Self {
        RawMember { kind, name: name.as_bytes(), target: target.as_bytes(), content: b"" }
    }

    fn of_kind(kind: EntryType, name: &'a str) -> Self {
        RawMember { kind, name: name.as_bytes(), target: b"", content: b"" }
    }
}

fn archive(members: &[RawMember<'_>]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for member in members {
        let mut header = Header::new_gnu();
        header.set_entry_type(member.kind);
        header.set_size(member.content.len() as u64);
        header.set_mode(if member.kind == EntryType::Directory { 0o755 } else { 0o644 });
        header.as_old_mut().name[..member.name.len()].copy_from_slice(member.name);
        header.as_old_mut().linkname[..member.target.len()].copy_from_slice(member.target);
        header.set_cksum();
        archive.append(&header, member.content).expect("written");
    }
    archive.into_inner().expect("written")
}

#[test]
fn directory_comes_back_as_it_was() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let long = "n".repeat(200);
    workspace.sh(&format!(
        "mkdir -p p/a/b p/empty p/closed; echo one >p/a/f; printf '\\0\\1\\xff' >p/bytes; echo '#!/bin/sh' >p/run; chmod 750 p/run; \
         echo {long} >p/a/{long}; ln -s ../a/f p/a/link; ln -s /workspace/p/bytes p/absolute; touch p/$'\\xfe'; echo x >p/closed/f; \
         chmod 500 p/closed; mkfifo p/fifo; touch -d 2020-02-03T04:05:06Z p/a/f; ln -s {long}/{long} p/far"
    ));
    let packed = pack(&workspace, "path=p");
    let mut names: Vec<(PathBuf, EntryType)> = Vec::new();
    for entry in Archive::new(&packed[..]).entries().expect("an archive") {
        let entry = entry.expect("a member");
        names.push((entry.path().expect("a name").into_owned(), entry.header().entry_type()));
    }
    assert!(
        names.iter().all(|(name, _)| name != Path::new("fifo")),
        "what is not a file is left out: {names:?}"
    );
    assert_eq!(names.len(), 13, "{names:?}");
    assert!(names.contains(&(format!("a/{long}").into(), EntryType::Regular)), "{names:?}");
    let (status, refused) = unpack(&workspace, "path=q/r", &packed);
    assert_eq!((status, &refused["code"]), (404, &json!("file_not_found")));
    // The absolute link leads out of the new directory.
    let (status, refused) = unpack(&workspace, "path=q/r&parents=true", &packed);
    assert_eq!(
        (status, &refused["code"], &refused["details"]["member"]),
        (403, &json!("path_outside"), &json!("absolute"))
    );
    assert_eq!(workspace.client.get(&workspace.at("/stat", "path=q")).0, 404, "nothing was changed");
    let (status, unpacked) = unpack(&workspace, "path=q/r&parents=true&links=keep", &packed);
    assert_eq!(
        (status, &unpacked["members"], &unpacked["path"]),
        (200, &json!(13), &json!("q/r")),
        "{unpacked}"
    );
    workspace.sh(
        "rm p/fifo; diff -r --no-dereference p q/r; cmp <(cd p; find . -printf '%p %m %y %l\\n' | sort) <(cd q/r; find . -printf '%p %m %y %l\\n' | sort); \
         test $(stat -c %Y q/r/a/f) = $(stat -c %Y p/a/f); test -O q/r/run",
    );
    // Again, over what is there.
    workspace.sh("chmod 700 p/closed");
    assert_eq!(unpack(&workspace, "path=p", &packed).0, 200);
    assert_eq!(workspace.read("p/a/f").1, b"one\n");
    assert!(
        Archive::new(&pack(&workspace, "path=p/empty")[..]).entries().expect("an archive").next().is_none()
    );
    assert_eq!(workspace.client.get(&workspace.at("/tar", "path=p/run")).1["code"], "wrong_file_type");
    assert_eq!(workspace.client.get(&workspace.at("/tar", "path=none")).1["code"], "file_not_found");
    assert_eq!(workspace.client.get(&workspace.at("/tar", "paht=p")).1["code"], "unknown_field");
}

#[test]
fn members_outside_the_directory_are_rejected_first() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir d; echo before >d/f; echo out >outside; ln -s .. d/up; ln -s ../outside d/link");
    let symlink = |name, target| RawMember::link(EntryType::Symlink, name, target);
    let hard = |name, target| RawMember::link(EntryType::Link, name, target);
    let long = "x".repeat(90);
    let cases: Vec<(Vec<RawMember<'_>>, &str)> = vec![
        (vec![RawMember::file("../escaped")], "path_outside"),
        (vec![RawMember::file("/workspace/escaped")], "path_outside"),
        (vec![RawMember::file("a/../../escaped")], "path_outside"),
        (vec![RawMember::of_kind(EntryType::Directory, "../escaped")], "path_outside"),
        (vec![symlink("l", "../outside")], "path_outside"),
        (vec![symlink("l", "/etc/passwd")], "path_outside"),
        (vec![symlink("l", "/workspace/outside")], "path_outside"),
        (vec![symlink("l", "a/../../outside")], "path_outside"),
        (vec![symlink("l", "")], "path_outside"),
        (vec![hard("l", "../outside")], "path_outside"),
        (vec![hard("l", "/etc/passwd")], "path_outside"),
        (vec![RawMember::of_kind(EntryType::Char, "null")], "wrong_file_type"),
        (vec![RawMember::of_kind(EntryType::Block, "disk")], "wrong_file_type"),
        (vec![RawMember::of_kind(EntryType::Fifo, "fifo")], "wrong_file_type"),
        (vec![RawMember::of_kind(EntryType::new(b'V'), "volume")], "wrong_file_type"),
        (vec![RawMember::of_kind(EntryType::GNUSparse, "sparse")], "bad_archive"),
        (vec![RawMember::file("")], "bad_archive"),
    ];
    for (mut members, code) in cases {
        // What can be unpacked comes first, and is not.
        members.insert(0, RawMember::file(&long));
        let name = String::from_utf8_lossy(members[1].name).into_owned();
        let (status, refused) = unpack(&workspace, "path=d", &archive(&members));
        assert_eq!((refused["code"].as_str(), status / 100), (Some(code), 4), "{name}: {refused}");
        assert!(refused["message"].is_string() && refused["hint"].is_string(), "{refused}");
        assert_eq!(paths(&workspace.list("path=d")), ["d/f", "d/link", "d/up"], "{name}");
    }
    // Over a link that is there already nothing is made, and nothing over one that comes with the
    // archive.
    for members in [
        vec![RawMember::file("up/escaped")],
        vec![RawMember::file("link/escaped")],
        vec![symlink("s", "up"), RawMember::file("s/escaped")],
        vec![hard("copy", "up/outside")],
    ] {
        let (status, refused) = unpack(&workspace, "path=d&links=keep", &archive(&members));
        assert_eq!((status, &refused["code"]), (409, &json!("wrong_file_type")), "{refused}");
        assert!(refused["details"]["unpacked"].is_u64(), "{refused}");
    }
    // Kept links lead nowhere that the workspace's do not.
    assert_eq!(unpack(&workspace, "path=d&links=keep", &archive(&[symlink("passwd", "/etc/passwd")])).0, 200);
    assert_eq!(workspace.rejection_codes("d/passwd"), ["path_outside"; 3]);
    assert_eq!(paths(&workspace.list("")), ["d", "outside"]);
    assert_eq!(workspace.read("outside").1, b"out\n");
}

#[test]
fn members_replace_files_and_links_but_no_directories() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace
        .sh("mkdir -p d/directory; echo old >d/file; ln -s file d/link; mkfifo d/fifo; echo kept >d/target");
    let members = [
        RawMember::file("file"),
        RawMember::file("link"),
        RawMember::file("fifo"),
        RawMember::link(EntryType::Link, "hard", "file"),
        RawMember::link(EntryType::Link, "target", "file"),
        RawMember::link(EntryType::Symlink, "soft", "target"),
        RawMember::link(EntryType::Symlink, "new/deep/soft", "../../file"),
    ];
    for _ in 0..2 {
        let (status, unpacked) = unpack(&workspace, "path=d", &archive(&members));
        assert_eq!((status, &unpacked["members"]), (200, &json!(7)), "{unpacked}");
    }
    workspace.sh(
        "cd d; for name in file link fifo hard target soft new/deep/soft; do test \"$(cat $name)\" = x; done; test ! -L link; test -f fifo; \
         test hard -ef file; test target -ef file; test \"$(stat -c %a file)\" = 644; test \"$(ls -A | wc -l)\" = 8",
    );
    for member in [
        RawMember::file("directory"),
        RawMember::link(EntryType::Symlink, "directory", "file"),
        RawMember::of_kind(EntryType::Directory, "file"),
    ] {
        let (status, refused) = unpack(&workspace, "path=d", &archive(&[RawMember::file("before"), member]));
        assert_eq!((status, &refused["code"]), (409, &json!("wrong_file_type")), "{refused}");
        assert_eq!(refused["details"]["unpacked"], 1, "{refused}");
    }
    workspace.sh("cd d; test -d directory; test -f file; ! ls -A | grep sandtimer");
}

#[test]
fn bodies_that_are_no_archives_are_refused_with_what_would_work() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let good = archive(&[RawMember::file("f")]);
    let mut broken = good.clone();
    broken[10] ^= 1;
    let long_name = RawMember {
        kind: EntryType::GNULongName,
        name: b"././@LongLink",
        target: b"",
        content: &[b'n'; 70_000],
    };
    let pax = |content| RawMember { kind: EntryType::XHeader, name: b"x", target: b"", content };
    for (body, expected) in [
        (&b""[..], "less than one block"),
        (b"hello", "less than one block"),
        (&[b'a'; 2_000], "not a tar archive"),
        (&broken, "checksum"),
        (&good[..512], "middle of a member"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "gzip -d"),
        (b"PK\x03\x04 and so on", "unzip"),
        (&archive(&[long_name, RawMember::file("f")]), "more than 65536 bytes"),
        (&archive(&[pax(b"10 size=9\n"), RawMember::file("f")]), "two lengths"),
        (&archive(&[pax(b"22 GNU.sparse.major=1\n"), RawMember::file("f")]), "sparse"),
        (&archive(&[pax(b"99 path=x\n"), RawMember::file("f")]), "pax"),
    ] {
        let (status, refused) = unpack(&workspace, "", body);
        let message = refused["message"].as_str().expect("a text");
        assert_eq!((status, &refused["code"]), (400, &json!("bad_archive")), "{refused}");
        assert!(message.contains(expected), "{expected}: {message}");
    }
    assert!(paths(&workspace.list("")).is_empty());
    // A long name and a long target by either kind of extended header.
    let (name, target) = (format!("{}/f", "d".repeat(150)), format!("{}/f", "t".repeat(150)));
    let mut long = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    header.set_mode(0o777);
    long.append_link(&mut header, &name, &target).expect("written");
    assert_eq!(unpack(&workspace, "", &long.into_inner().expect("written")).1["members"], 1);
    assert_eq!(workspace.client.get(&workspace.at("/stat", &format!("path={name}"))).1["target"], target);
    let record = format!("path={}/g\n", "d".repeat(150));
    let record = format!("{} {record}", record.len() + 4);
    assert_eq!(unpack(&workspace, "", &archive(&[pax(record.as_bytes()), RawMember::file("short")])).0, 200);
    assert_eq!(workspace.read(&format!("{}/g", "d".repeat(150))).1, b"x");
}

#[test]
fn archives_have_bounds_in_both_directions() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let directory = RawMember::of_kind(EntryType::Directory, "d");
    let block = archive(&[directory])[..512].to_vec();
    let (status, refused) = unpack(&workspace, "", &block.repeat(200_001));
    assert_eq!(
        (status, &refused["code"], &refused["details"]["max_members"]),
        (413, &json!("file_too_large"), &json!(200_000))
    );
    let deep = "d/".repeat(40);
    let (status, refused) = unpack(&workspace, "", &archive(&[RawMember::file(&format!("{deep}f"))]));
    assert_eq!(status, 200, "{refused}");
    workspace.sh("mkdir s; truncate -s 10G s/sparse");
    let (status, refused) = workspace.client.get(&workspace.at("/tar", "path=s"));
    assert_eq!((status, &refused["code"]), (413, &json!("file_too_large")), "{refused}");
    workspace.sh("mkdir -p $(printf 'e/%.0s' $(seq 70))");
    let (status, refused) = workspace.client.get(&workspace.at("/tar", "path=e"));
    assert_eq!((status, &refused["code"]), (413, &json!("file_too_large")), "{refused}");
    if rustix::process::geteuid().is_root() {
        // The server's rights are not those of the files' owner.
        let shut = workspace.directory().join("s/shut");
        std::fs::write(&shut, "root's").expect("written");
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o600)).expect("set");
        workspace.sh("rm s/sparse");
        let (status, refused) = workspace.client.get(&workspace.at("/tar", "path=s"));
        assert_eq!((status, &refused["code"]), (403, &json!("file_permission")), "{refused}");
        assert!(refused["message"].as_str().expect("a text").contains("s/shut"), "{refused}");
    }
}

#[test]
fn archive_of_files_that_shrink_breaks_off() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir d; truncate -s 3G d/shrinking");
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", workspace.at("/tar", "path=d"));
    let mut stream = raw(serving.address, request.as_bytes());
    let mut buffer = vec![0; 1 << 20];
    stream.read_exact(&mut buffer).expect("its beginning");
    workspace.sh("truncate -s 1M d/shrinking");
    let (mut rest, mut end) = (0u64, Vec::new());
    // A reset is an end, too.
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        rest += length as u64;
        end = buffer[..length].to_vec();
    }
    assert!(rest < 3 << 30 && !end.ends_with(b"0\r\n\r\n"), "it is not whole, after {rest} bytes more");
    // A client that leaves holds nothing: more than one owner's archives at a time.
    for _ in 0..20 {
        workspace.sh("truncate -s 3G d/shrinking");
        let mut stream = raw(serving.address, request.as_bytes());
        stream.read_exact(&mut buffer).expect("its beginning");
        drop(stream);
        support::wait_until("an archive can be had", || {
            workspace.client.get(&workspace.at("/tar", "path=d/shrinking")).1["code"] == "wrong_file_type"
        });
    }
}

/// Exchanges a directory and a link to the treasure until the file `stop` exists.
const SWAPPER: &str = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nos.makedirs('d/s')\n\
    os.symlink('../../../../treasure', 'd/link')\nopen('ready', 'w').close()\n\
    while not os.path.exists('stop'):\n    for _ in range(1001):\n        libc.renameat2(-100, b'd/s', -100, b'd/link', 2)\n";

#[test]
fn run_that_swaps_directories_never_leads_archives_outside() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    let treasure = serving.state.path().join("treasure");
    std::fs::create_dir(&treasure).expect("made");
    std::fs::set_permissions(&treasure, std::fs::Permissions::from_mode(0o777)).expect("set");
    std::fs::write(treasure.join("f"), "treasure").expect("written");
    let swapping =
        json!({"code": SWAPPER, "language": "python", "workspace": workspace.id, "wall_ms": 25_000});
    let id = workspace.client.start(swapping);
    while workspace.client.get(&workspace.at("/stat", "path=ready")).0 != 200 {}
    // The negative control: by its name the link leads out.
    let by_name = (0..200_000)
        .any(|_| std::fs::read(workspace.directory().join("d/s/f")).is_ok_and(|read| read == b"treasure"));
    assert!(by_name, "the attack works where nothing stops it");
    let members = [
        RawMember::of_kind(EntryType::Directory, "s"),
        RawMember::file("s/f"),
        RawMember::file("s/g"),
        RawMember::link(EntryType::Symlink, "s/soft", "f"),
        RawMember::link(EntryType::Link, "s/hard", "s/f"),
    ];
    let body = archive(&members);
    let (mut unpacked, mut refused) = (0, 0);
    for _ in 0..300 {
        let (status, answer) = unpack(&workspace, "path=d", &body);
        assert!(status < 500, "{answer}");
        if status == 200 {
            unpacked += 1
        } else {
            refused += 1
        }
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            workspace.at("/tar", "path=d")
        );
        // The answer may break off. The name of the treasure is in the link's target, after a `/`.
        let mut packed = Vec::new();
        let _ = raw(serving.address, request.as_bytes()).read_to_end(&mut packed);
        assert!(!packed.windows(10).any(|bytes| bytes == b"\0treasure\0"), "{unpacked} {refused}");
        assert_eq!(std::fs::read(treasure.join("f")).expect("there"), b"treasure");
    }
    assert_eq!(std::fs::read_dir(&treasure).expect("a directory").count(), 1, "{unpacked} {refused}");
    assert!(unpacked > 0 && refused > 0, "both were met: {unpacked} {refused}");
    workspace.put("stop", b"");
    workspace.client.ended(&id);
}
