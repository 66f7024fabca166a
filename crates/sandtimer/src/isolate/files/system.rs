//! The part of a run's file system that is the same for every run: the host's programs and
//! libraries, the harmless part of /etc, a minimal /dev and private temporary directories.
//!
//! Shows no user names, no mail, no logs, no sockets. A file of /etc is listed only if programs
//! read it and operators keep no secrets in it.

use super::mounts::{AccountFile, FileKind, HOST_NAME, Mount};
use super::request::{FilesRequest, OWN_FILE, PROGRAM_DESCRIPTOR, PROGRAM_FILE};
use super::tree::MountTree;
use crate::isolate::toolchain::lookup::HostFiles;
use crate::model::PROGRAM_FILES;
use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const TREES: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"];

/// Certificates come as the directories that hold them: their parents hold private keys.
const ETC: [&str; 40] = [
    "R",
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "maven/m2.conf",
    "mime.types",
    "networks",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "system-release",
    "terminfo",
    "timezone",
    "xml",
];
/// Names of /etc that carry a version.
const ETC_BEGINNINGS: [&str; 3] = ["ImageMagick", "java-", "python3"];
/// Shown only to a run that shares the host's network.
const ETC_NETWORK: [&str; 2] = ["hosts", "resolv.conf"];

/// A larger file of /etc is mounted, not copied.
const COPIED_BYTES: u64 = 16 << 10;

const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];
const TEMPORARY: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// Adds the system part.
pub(super) fn add(tree: &mut MountTree, host: &HostFiles, request: &FilesRequest<'_>) {
    for path in TREES.map(Path::new) {
        add_system(tree, host, path);
    }
    let etc = Path::new("/etc");
    let network: &[&str] = if request.network { &ETC_NETWORK } else { &[] };
    for name in ETC {
        let path = etc.join(name);
        match small_file(host, &path) {
            Some(contents) => tree.add(Mount::Synthetic { target: path, contents: contents.into() }),
            None => add_system(tree, host, &path),
        }
    }
    let named = network.iter().map(OsString::from);
    for name in named.chain(host.names(etc, &ETC_BEGINNINGS)) {
        add_system(tree, host, &etc.join(name));
    }
    add_synthetic(tree);
    for name in DEVICES {
        tree.add(Mount::Device { target: Path::new("/dev").join(name) });
    }
    for (target, points_to) in DEVICE_LINKS {
        tree.add(Mount::Symlink { target: target.into(), points_to: points_to.into() });
    }
    if request.ptys > 0 {
        if host.resolve(Path::new("/dev/tty")).is_ok() {
            tree.add(Mount::Device { target: "/dev/tty".into() });
        }
        tree.add(Mount::Terminals { target: "/dev/pts".into(), most: request.ptys });
        tree.add(Mount::Symlink { target: "/dev/ptmx".into(), points_to: "pts/ptmx".into() });
    }
    for target in TEMPORARY.map(PathBuf::from) {
        tree.add(Mount::Tmpfs { target, mode: 0o1777 });
    }
    tree.add(Mount::Proc { target: "/proc".into(), files: request.machine.proc.clone() });
    for (target, contents) in request.machine.sys.iter().cloned() {
        tree.add(Mount::Synthetic { target, contents });
    }
    for (target, contents) in request.own {
        tree.add(Mount::Synthetic { target: target.clone(), contents: Cow::Borrowed(contents) });
    }
    tree.add(Mount::Symlink { target: PROGRAM_FILE.into(), points_to: PROGRAM_DESCRIPTOR.into() });
    for name in PROGRAM_FILES {
        tree.add(Mount::Symlink { target: name.into(), points_to: OWN_FILE.into() });
    }
}

/// The contents of a small file that every user may read, unless it is a link to a shown file.
/// Every mount is copied for every sandbox and taken apart again; a copy of a file costs once.
fn small_file(host: &HostFiles, path: &Path) -> Option<Vec<u8>> {
    let found = host.resolve(path).ok().filter(|found| found.links.is_empty())?;
    let small = found.metadata.is_file() && found.metadata.len() <= COPIED_BYTES;
    if !small || found.metadata.mode() & 0o004 == 0 {
        return None;
    }
    host.bytes(path)
}

/// Shows a path of the system read-only, as a link if it is one and leads to something shown.
fn add_system(tree: &mut MountTree, host: &HostFiles, path: &Path) {
    let Ok(found) = host.resolve(path) else { return };
    let link = host.link(path).filter(|_| tree.shows(&found.path));
    let mount = match link {
        Some(points_to) => Mount::Symlink { target: path.to_path_buf(), points_to },
        None => {
            let kind = if found.metadata.is_dir() { FileKind::Directory } else { FileKind::File };
            let (source, target) = (found.path.clone(), path.to_path_buf());
            Mount::Bind { source, target, writable: false, identity_mapped: false, kind }
        }
    };
    tree.add(mount);
}

/// Adds made-up contents for files that on the host reveal its users.
fn add_synthetic(tree: &mut MountTree) {
    let hosts = format!("127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t{HOST_NAME}\n");
    let switch = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
                  protocols: files\nservices: files\nethers: files\nrpc: files\n";
    let files = [
        ("/etc/hosts", hosts),
        ("/etc/hostname", format!("{HOST_NAME}\n")),
        ("/etc/nsswitch.conf", switch.to_owned()),
    ];
    for (target, file) in [("/etc/passwd", AccountFile::Passwd), ("/etc/group", AccountFile::Group)] {
        tree.add(Mount::Accounts { target: target.into(), file });
    }
    for (target, contents) in files {
        tree.add(Mount::Synthetic { target: target.into(), contents: contents.into_bytes().into() });
    }
}
