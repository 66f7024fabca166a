//! What has changed in a sandbox, its files as an archive, and templates from archives: what comes
//! back, and what a hostile tree or archive cannot do.
#![allow(clippy::disallowed_methods)] // a test makes a tree by a shell, and looks at what is left

use crate::support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, raw, tokens, wait_until};
use tar::{Archive, Builder, EntryType, Header};

fn made(client: &TestClient, body: &Value) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", body);
    assert_eq!(status, 201, "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn sh(client: &TestClient, id: &str, line: &str) -> String {
    let (_, run) = client.post(
        &format!("/v1/sandboxes/{id}/exec"),
        &json!({"command": ["sh", "-c", line], "wall_ms": 20_000}),
    );
    assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
    run["outcome"]["stdout"].as_str().expect("text").to_owned()
}

/// Changes as `added file /path`.
fn diff(client: &TestClient, id: &str) -> Vec<String> {
    let (status, listed) = client.get(&format!("/v1/sandboxes/{id}/diff"));
    assert_eq!((status, &listed["truncated"]), (200, &json!(false)), "{listed}");
    let field_value = |change: &Value, name: &str| change[name].as_str().expect("text").to_owned();
    let changes = listed["changes"].as_array().expect("a list").iter();
    changes.map(|one| ["change", "kind", "path"].map(|name| field_value(one, name)).join(" ")).collect()
}

/// The members of an archive: their type, mode, owner, and content or target.
fn members(archive: &[u8]) -> BTreeMap<String, (EntryType, u32, u64, String)> {
    let mut found = BTreeMap::new();
    for entry in Archive::new(archive).entries().expect("an archive") {
        let mut entry = entry.expect("a member");
        let mut content = String::new();
        entry.read_to_string(&mut content).expect("text");
        if let Some(target) = entry.link_name().expect("a target") {
            content = target.to_string_lossy().into_owned();
        }
        let header = entry.header();
        let about =
            (header.entry_type(), header.mode().expect("a mode"), header.uid().expect("an id"), content);
        found.insert(entry.path().expect("a name").to_string_lossy().into_owned(), about);
    }
    found
}

#[track_caller]
fn exported(client: &TestClient, id: &str, query: &str) -> BTreeMap<String, (EntryType, u32, u64, String)> {
    let (status, archive) = client.bytes(&format!("/v1/sandboxes/{id}/export{query}"), &[]);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&archive));
    members(&archive)
}

#[test]
fn diff_and_export_follow_whiteouts_and_opaque_directories() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let origin = made(&client, &json!({}));
    assert_eq!(diff(&client, &origin), Vec::<String>::new(), "the engine's own directories are no change");
    sh(
        &client,
        &origin,
        "echo one >same; echo one >file; mkdir -p d/e gone/deep cut; echo x >d/e/x; echo y >gone/deep/y; \
                          echo z >cut/z; echo z >cut/again; touch removed; ln -s file link; echo home >~/kept",
    );
    assert_eq!(diff(&client, &origin)[..2], ["added file /home/user/kept", "added directory /workspace/cut"]);
    client.post(&format!("/v1/sandboxes/{origin}/snapshot"), &json!({"name": "first"}));
    // Over several layers of its own: each takes something away that one below has.
    let id = made(&client, &json!({"template": "first"}));
    assert_eq!(diff(&client, &id), Vec::<String>::new());
    sh(
        &client,
        &id,
        "rm removed; rm -r gone cut; mkdir cut; echo new >cut/again; touch between; mkdir later; echo l >later/l",
    );
    client.post(&format!("/v1/sandboxes/{id}/snapshot"), &json!({}));
    sh(
        &client,
        &id,
        "echo two >file; rm between; chmod 700 d; rm link; mkdir link; rm -r later; mkdir later; touch ~/kept; mkfifo fifo",
    );
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).1["layers"].as_array().map(Vec::len), Some(2));
    let expected = [
        "changed file /home/user/kept",
        "changed file /workspace/cut/again",
        "deleted file /workspace/cut/z",
        "changed directory /workspace/d",
        "added other /workspace/fifo",
        "changed file /workspace/file",
        "deleted directory /workspace/gone",
        "added directory /workspace/later",
        "changed directory /workspace/link",
        "deleted file /workspace/removed",
    ];
    assert_eq!(diff(&client, &id), expected);
    let (_, cut) = client.get(&format!("/v1/sandboxes/{id}/diff?limit=3"));
    assert_eq!(
        (cut["changes"].as_array().map(Vec::len), &cut["truncated"]),
        (Some(3), &json!(true)),
        "{cut}"
    );

    let changes = exported(&client, &id, "?what=changes");
    let names: Vec<&str> = changes.keys().map(String::as_str).collect();
    let expected = [
        "home/user/kept",
        "workspace/cut/again",
        "workspace/d/",
        "workspace/file",
        "workspace/later/",
        "workspace/link/",
    ];
    assert_eq!(names, expected);
    assert_eq!(changes["workspace/d/"], (EntryType::Directory, 0o700, 1_000, String::new()));
    let all = exported(&client, &id, "");
    assert_eq!(all["workspace/same"], (EntryType::Regular, 0o644, 1_000, "one\n".to_owned()));
    assert_eq!(
        (&all["workspace/file"].3[..], &all["workspace/d/e/x"].3[..], &all["workspace/cut/again"].3[..]),
        ("two\n", "x\n", "new\n")
    );
    assert_eq!((all["tmp/"].1, all["tmp/"].2), (0o1777, 0));
    for gone in [
        "workspace/cut/z",
        "workspace/removed",
        "workspace/gone/",
        "workspace/between",
        "workspace/later/l",
        "workspace/fifo",
        "usr/",
    ] {
        assert!(!all.contains_key(gone), "{gone}");
    }
    for query in ["diff?limit=0", "diff?limit=x", "export?what=some", "export?which=all"] {
        let (status, error) = client.get(&format!("/v1/sandboxes/{id}/{query}"));
        assert_eq!((status, error["hint"].is_string()), (400, true), "{query}: {error}");
    }
}

/// A tree in which everything leads out of it, or waits for a writer.
#[test]
fn hostile_tree_is_read_without_following_or_opening() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    let secret = serving.state.path().join("secret");
    std::fs::write(&secret, "the host's").expect("written");
    let line = format!(
        "ln -s {0} link; ln -s / root; ln -s ../../../../../../../../../..{0} up; mkfifo fifo; mkdir -p a/b; ln -s /etc a/b/etc; \
         touch -- 'new\nline' '-x' $(printf 'b\\377'); n=d; for i in $(seq 60); do mkdir $n; n=$n/d; done; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")' 2>/dev/null; true",
        secret.display()
    );
    sh(&client, &id, &line);
    let all = exported(&client, &id, "");
    assert_eq!(all["workspace/link"], (EntryType::Symlink, 0o777, 1_000, secret.display().to_string()));
    assert!(all.contains_key("workspace/new\nline") && all.contains_key("workspace/-x"), "{all:?}");
    assert!(all.values().all(|member| !member.3.contains("the host's")), "{all:?}");
    assert!(
        all.keys()
            .all(|name| !name.starts_with("workspace/root/") && !name.starts_with("workspace/a/b/etc/")),
        "{all:?}"
    );
    assert!(diff(&client, &id).contains(&"added other /workspace/fifo".to_owned()));

    sh(&client, &id, "echo x >shut; chmod 0 shut");
    let (status, refused) = client.get(&format!("/v1/sandboxes/{id}/export"));
    assert_eq!(
        (status, &refused["code"], &refused["details"]["path"]),
        (403, &json!("file_permission"), &json!("/workspace/shut")),
        "{refused}"
    );
    sh(&client, &id, "rm -f shut; mkdir closed; chmod 0 closed");
    for what in ["diff", "export"] {
        let (status, refused) = client.get(&format!("/v1/sandboxes/{id}/{what}"));
        assert_eq!((status, &refused["code"]), (403, &json!("file_permission")), "{refused}");
        assert!(
            refused["message"].as_str().is_some_and(|text| text.contains("/workspace/closed")),
            "{refused}"
        );
    }
}

/// A root tree that is enough for a shell.
fn tree(root: &Path) {
    let script = "set -e; mkdir -p $0/bin $0/etc $0/srv; cd $0; \
        for tool in sh cat id ls mkdir touch rm stat; do path=$(readlink -f $(command -v $tool)); cp $path bin/$tool; \
        for library in $(ldd $path | grep -o '/[^ )]*'); do mkdir -p .$(dirname $library); cp -L $library .$library; done; done; \
        echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd; echo template >etc/name; ln -s /etc/name srv/link; chmod 4755 bin/id; mkfifo srv/fifo";
    let made = std::process::Command::new("sh").args(["-c", script]).arg(root).status().expect("started");
    assert!(made.success());
}

#[test]
fn archive_becomes_a_template_and_comes_back() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let host_directory = tempfile::tempdir().expect("a directory");
    let root = host_directory.path().join("tree");
    tree(&root);
    let mut archive = Builder::new(Vec::new());
    archive.follow_symlinks(false);
    archive.append_dir_all("./", &root).expect("packed");
    let archive = archive.into_inner().expect("packed");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&archive).expect("compressed");
    let gzip = gzip.finish().expect("compressed");
    let zstd = ruzstd::encoding::compress_to_vec(&archive[..], ruzstd::encoding::CompressionLevel::Fastest);
    for (name, body) in [("plain", &archive), ("gzip", &gzip), ("zstd", &zstd)] {
        let (status, template) = client.post_bytes(&format!("/v1/templates?name={name}"), body);
        assert_eq!(
            (status, &template["kind"], &template["left_out"]),
            (201, &json!("import"), &json!(1)),
            "{name}: {template}"
        );
        let id = made(&client, &json!({"template": name}));
        let line = "cat /srv/link; id -un; id -u; stat -c '%a %U' /bin/id /srv; ls /srv; touch /srv/mine /workspace/x; rm /srv/link";
        assert_eq!(sh(&client, &id, line), "template\nuser\n1000\n755 user\n755 user\nlink\n", "{name}");
        assert_eq!(
            diff(&client, &id),
            ["deleted link /srv/link", "added file /srv/mine", "added file /workspace/x"],
            "{name}"
        );
    }
    let id = made(&client, &json!({"template": "plain"}));
    sh(&client, &id, "echo changed >/etc/name; rm /bin/stat");
    client.post(&format!("/v1/sandboxes/{id}/snapshot"), &json!({}));
    let (status, whole) = client.bytes(&format!("/v1/sandboxes/{id}/export"), &[]);
    assert_eq!(status, 200);
    assert_eq!(client.post_bytes("/v1/templates?name=again", &whole).0, 201);
    let again = made(&client, &json!({"template": "again"}));
    assert_eq!(sh(&client, &again, "cat /srv/link; ls /bin"), "changed\ncat\nid\nls\nmkdir\nrm\nsh\ntouch\n");
    for name in ["plain", "gzip", "zstd", "again"] {
        assert_eq!(client.delete(&format!("/v1/templates/{name}")).0, 204);
    }
    assert_eq!(sh(&client, &again, "cat /etc/name"), "changed\n", "it keeps the files of its template");
}

fn member(kind: EntryType, name: &str, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    let mut archive = Builder::new(Vec::new());
    archive.append(&header, content).expect("written");
    let mut bytes = archive.into_inner().expect("written");
    // Without the end.
    bytes.truncate(bytes.len() - 1_024);
    bytes
}

#[test]
fn hostile_archives_make_no_template_and_leave_nothing() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let outside = tempfile::tempdir().expect("a directory");
    let out = outside.path().display().to_string();
    let file = |name: &str| member(EntryType::Regular, name, "", b"x");
    let link = |name: &str, target: &str| member(EntryType::Symlink, name, target, b"");
    let end = vec![0; 1_024];
    let mut sparse = member(EntryType::GNUSparse, "sparse", "", b"x");
    sparse.extend(&end);
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        bomb.write_all(&vec![0; 1 << 20]).expect("compressed");
    }
    let mut cut = bomb.finish().expect("compressed");
    cut.truncate(cut.len() / 2);
    let hostile: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a parent", [file("a"), file("../out"), end.clone()].concat(), "path_outside"),
        ("a parent later", [file("a/../../out"), end.clone()].concat(), "path_outside"),
        ("an absolute name", [file(&format!("{out}/out")), end.clone()].concat(), "path_outside"),
        ("a linked parent", [link("d", &out), file("d/out"), end.clone()].concat(), "wrong_file_type"),
        (
            "a link replaced by a directory",
            [link("d", "/"), member(EntryType::Directory, "d", "", b""), file("d/out"), end.clone()].concat(),
            "wrong_file_type",
        ),
        (
            "a hard link outside",
            [member(EntryType::Link, "h", &format!("{out}/f"), b""), end.clone()].concat(),
            "path_outside",
        ),
        ("a hard link up", [member(EntryType::Link, "h", "../f", b""), end.clone()].concat(), "path_outside"),
        (
            "a hard link over a link",
            [link("d", &out), member(EntryType::Link, "h", "d/f", b""), end.clone()].concat(),
            "wrong_file_type",
        ),
        (
            "a directory over a file",
            [file("f"), member(EntryType::Directory, "f", "", b""), end.clone()].concat(),
            "wrong_file_type",
        ),
        ("a sparse file", sparse, "bad_archive"),
        ("a member that is cut", file("f")[..512].to_vec(), "bad_archive"),
        ("gzip that is cut", cut, "bad_archive"),
        ("zstd that is none", b"\x28\xb5\x2f\xfd garbage".to_vec(), "bad_archive"),
        ("no archive", b"hello".to_vec(), "bad_archive"),
        ("nothing", Vec::new(), "bad_archive"),
    ];
    std::fs::write(outside.path().join("f"), "the host's").expect("written");
    for (what, body, code) in &hostile {
        let (status, error) = client.post_bytes("/v1/templates?name=evil", body);
        assert!((400..500).contains(&status), "{what}: {error}");
        assert_eq!((&error["code"], error["hint"].is_string()), (&json!(code), true), "{what}: {error}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).expect("there").count(), 1, "nothing lands outside");
    let layers = serving.state.path().join("sandboxes/.layers");
    let left: Vec<_> = std::fs::read_dir(&layers).expect("there").collect();
    assert!(left.is_empty(), "nothing half-imported stays: {left:?}");
    assert_eq!(client.get("/v1/templates").1["templates"].as_array().map(Vec::len), Some(1));
    for name in ["", "..", "host", "a/b"] {
        let (status, error) =
            client.post_bytes(&format!("/v1/templates?name={name}"), &[file("f"), end.clone()].concat());
        assert_eq!((status, &error["details"]["key"]), (400, &json!("name")), "{name}: {error}");
    }
    // The control: what is harmless of it is a template. Of two members of a name the later one
    // counts.
    let twice = [
        file("f"),
        member(EntryType::Regular, "f", "", b"second"),
        link("d", &out),
        member(EntryType::Char, "null", "", b""),
        end,
    ]
    .concat();
    let (status, template) = client.post_bytes("/v1/templates?name=fine", &twice);
    assert_eq!(
        (status, &template["members"], &template["left_out"]),
        (201, &json!(4), &json!(1)),
        "{template}"
    );
    let (status, again) = client.post_bytes("/v1/templates?name=fine", &twice);
    assert_eq!((status, &again["code"]), (409, &json!("template_exists")), "{again}");
    let id = made(&client, &json!({"template": "fine"}));
    let all = exported(&client, &id, "");
    assert_eq!((&all["f"].3[..], &all["d"].3[..], all.contains_key("null")), ("second", &out[..], false));
}

/// An owner may have eight archives under way: here seven uploads that wait, and an import whose
/// client has left. Listing changes counts as well.
#[test]
fn import_holds_its_share_after_its_client_left() {
    const TOKEN: &str = "secret-of-a-0123456789";
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(&format!("a {TOKEN}\n"))));
    let client = serving.client_with(TOKEN);
    let id = made(&client, &json!({}));
    let diff = || client.get(&format!("/v1/sandboxes/{id}/diff"));
    let layers = serving.state.path().join("sandboxes/.layers");
    let imports = || std::fs::read_dir(&layers).map_or(0, Iterator::count);
    let before = imports();
    let upload = |name: &str, length: usize, content: &[u8]| {
        let head = format!(
            "POST /v1/templates?name={name} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        let mut stream = raw(serving.address, head.as_bytes());
        stream.write_all(content).expect("sent");
        stream
    };
    let waiting: Vec<_> =
        (0..7).map(|number| upload(&format!("waiting-{number}"), 1_000_000, b"part")).collect();
    wait_until("seven have their shares", || imports() == before + 7);
    assert_eq!(diff().0, 200, "the control: there is one share more");
    let files = (0..20_000).flat_map(|number| member(EntryType::Regular, &format!("f{number}"), "", b""));
    let archive: Vec<u8> = files.chain([0; 1_024]).collect();
    let leaving = upload("slow", archive.len(), &archive);
    wait_until("it is being unpacked", || {
        let mut entries = std::fs::read_dir(&layers).into_iter().flatten().flatten();
        entries.any(|entry| entry.path().join("upper/f0").exists())
    });
    drop(leaving);
    let refused = Cell::new(0);
    wait_until("it is a template", || {
        let (status, answer) = diff();
        let (_, listed) = client.get("/v1/templates");
        let templates = listed["templates"].as_array().expect("a list");
        let is_made = templates.iter().any(|template| template["name"] == "slow");
        if !is_made {
            assert_eq!((status, &answer["code"]), (429, &json!("quota")), "{answer}");
            refused.set(refused.get() + 1);
        }
        is_made
    });
    assert!(refused.get() > 0, "it took long enough");
    drop(waiting);
    wait_until("the shares are free", || diff().0 == 200);
}
