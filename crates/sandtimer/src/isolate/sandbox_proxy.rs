//! How programs in a sandbox with a network allow-list find its proxy: by variables, and by files
//! for those that get no variables.
//!
//! The files are in the layer of the engine's own, below the sandbox's: its user may change what it
//! can write.

use std::borrow::Cow;
use std::path::Path;

use super::files::Mount;

/// The variables. `no_proxy`: the loopback is the sandbox's own.
pub const PROXY_VARIABLES: [(&str, &str); 9] = [
    // curl reads `http_proxy` in lower case only; others read either.
    ("http_proxy", PROXY),
    ("HTTP_PROXY", PROXY),
    ("https_proxy", PROXY),
    ("HTTPS_PROXY", PROXY),
    // Not `socks5h`: httpx without its SOCKS package then fails for every client.
    ("all_proxy", PROXY),
    ("ALL_PROXY", PROXY),
    ("no_proxy", NO_PROXY),
    ("NO_PROXY", NO_PROXY),
    // Node.js from 24 on reads the others only then.
    ("NODE_USE_ENV_PROXY", "1"),
];
const PROXY: &str = "http://127.0.0.1:3128";
const NO_PROXY: &str = "localhost,127.0.0.1,::1";

/// Files of a template that are kept, with the proxy's lines added.
pub const OWN_SETTINGS: [&str; 2] = ["etc/gitconfig", "etc/pip.conf"];

/// Adds the files, in place of those that are shown under these names. `own`: the template's of
/// [`OWN_SETTINGS`].
pub fn add_proxy_files(mounts: &mut Vec<Mount>, own: [Vec<u8>; 2]) {
    let [git, pip] = own;
    let git_lines = format!("[http]\n\tproxy = {PROXY}\n");
    let files: [(&str, Vec<u8>); 6] = [
        (
            "/etc/apt/apt.conf.d/95sandtimer-proxy",
            format!("Acquire::http::Proxy \"{PROXY}\";\nAcquire::https::Proxy \"{PROXY}\";\n").into(),
        ),
        ("/etc/gitconfig", followed_by(git, git_lines.as_bytes())),
        ("/etc/npmrc", format!("proxy={PROXY}\nhttps-proxy={PROXY}\nnoproxy={NO_PROXY}\n").into()),
        ("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n".to_vec()),
        ("/etc/pip.conf", pip_settings(&pip)),
        ("/etc/resolv.conf", b"nameserver 127.0.0.1\noptions timeout:1 attempts:1\n".to_vec()),
    ];
    mounts.retain(|mount| !files.iter().any(|(target, _)| mount.target() == Path::new(target)));
    let etc = mounts.iter().position(|mount| mount.target() == Path::new("/etc"));
    let at = etc.map_or(mounts.len(), |at| at + 1);
    let directories = ["/etc/apt", "/etc/apt/apt.conf.d"].map(Path::new);
    let directories = directories
        .into_iter()
        .filter(|directory| !mounts.iter().any(|mount| mount.target() == *directory))
        .map(|directory| Mount::Directory { target: directory.into() });
    let files = files
        .into_iter()
        .map(|(target, contents)| Mount::Synthetic { target: target.into(), contents: Cow::Owned(contents) });
    let added: Vec<Mount> = directories.chain(files).collect();
    mounts.splice(at..at, added);
}

fn followed_by(mut contents: Vec<u8>, lines: &[u8]) -> Vec<u8> {
    if contents.last().is_some_and(|last| *last != b'\n') {
        contents.push(b'\n');
    }
    contents.extend_from_slice(lines);
    contents
}

/// The settings of pip with the proxy in `[global]`, which may be there once only. A section that
/// names a proxy is kept.
fn pip_settings(own: &[u8]) -> Vec<u8> {
    let is_proxy = |line: &[u8]| line.trim_ascii_start().starts_with(b"proxy");
    let lines: Vec<&[u8]> = own.split_inclusive(|byte| *byte == b'\n').collect();
    if lines.iter().any(|line| is_proxy(line)) {
        return own.to_vec();
    }
    let setting = format!("proxy = {PROXY}\n");
    match lines.iter().position(|line| line.trim_ascii() == b"[global]") {
        Some(at) => {
            let head = followed_by(lines[..=at].concat(), setting.as_bytes());
            [head, lines[at + 1..].concat()].concat()
        }
        None => followed_by(own.to_vec(), format!("[global]\n{setting}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_has_the_port_that_listens() {
        assert_eq!(PROXY, format!("http://127.0.0.1:{}", sandtimer_os::wire::PROXY_PORT));
    }

    #[test]
    fn own_settings_of_a_template_are_kept() {
        let text = |own: &str| String::from_utf8(pip_settings(own.as_bytes())).expect("text");
        assert_eq!(text(""), format!("[global]\nproxy = {PROXY}\n"));
        assert_eq!(
            text("[global]\nindex-url = http://x/\n[install]\nuser = no"),
            format!("[global]\nproxy = {PROXY}\nindex-url = http://x/\n[install]\nuser = no")
        );
        assert_eq!(
            text("[install]\nuser = no"),
            format!("[install]\nuser = no\n[global]\nproxy = {PROXY}\n")
        );
        assert_eq!(text("[global]\nproxy = http://other\n"), "[global]\nproxy = http://other\n");
        let mut mounts = vec![
            Mount::Directory { target: "/etc".into() },
            Mount::Synthetic {
                target: "/etc/nsswitch.conf".into(),
                contents: Cow::Borrowed(b"hosts: files"),
            },
        ];
        add_proxy_files(&mut mounts, [b"[user]\n\tname = a".to_vec(), Vec::new()]);
        let of = |path: &str| {
            let mut found = mounts.iter().filter(|mount| mount.target() == Path::new(path));
            match (found.next(), found.next()) {
                (Some(Mount::Synthetic { contents, .. }), None) => {
                    String::from_utf8_lossy(contents).into_owned()
                }
                other => panic!("{path}: {other:?}"),
            }
        };
        assert_eq!(of("/etc/gitconfig"), format!("[user]\n\tname = a\n[http]\n\tproxy = {PROXY}\n"));
        assert!(of("/etc/nsswitch.conf").contains("hosts: files dns"));
    }
}
