//! The device nodes of GPUs, and the other files that the libraries of their drivers read.
//!
//! Shows nodes of the known names and nothing else of /dev. What is read of /sys is copied when the
//! plan is made: the host's own is covered while a root is built, and of a copy nothing can be
//! written. The hard fact: each node leads to a driver with hundreds of requests, and no isolation
//! layer checks them.

use super::mounts::Mount;
use super::notes::FilesError;
use super::tree::MountTree;
use crate::isolate::toolchain::lookup::HostFiles;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Nodes with one name; those with a number are in [`is_numbered`].
const NAMED: [&str; 5] = ["kfd", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"];
/// Where further ones are, and what their names begin with.
const DIRECTORIES: [(&str, &str); 2] = [("/dev/dri", "renderD"), ("/dev/nvidia-caps", "nvidia-cap")];

/// Kernel modules whose state is asked for before their devices are opened.
const MODULES: [&str; 4] = ["amdgpu", "nvidia", "nvidia_modeset", "nvidia_uvm"];
/// Where memory and processors are, which libraries lay out their own by.
const MACHINE: [&str; 6] =
    ["cpu/online", "cpu/possible", "cpu/present", "memory/block_size_bytes", "node/online", "node/possible"];
const OF_MEMORY_NODE: [&str; 2] = ["cpulist", "cpumap"];
/// The shown files of a GPU on the PCI bus.
const OF_PCI: [&str; 11] = [
    "class",
    "config",
    "device",
    "local_cpulist",
    "local_cpus",
    "numa_node",
    "revision",
    "subsystem_device",
    "subsystem_vendor",
    "uevent",
    "vendor",
];
/// The part of a configuration space that every user may read.
const CONFIG_BYTES: usize = 64;
/// NVIDIA and AMD.
const VENDORS: [&str; 2] = ["0x10de", "0x1002"];
/// Display controllers and processing accelerators.
const CLASSES: [&str; 2] = ["0x03", "0x12"];

const TOPOLOGY: &str = "/sys/devices/virtual/kfd/kfd/topology";
/// Files of a topology at most, each a page of the root: eight GPUs in one machine have about as
/// many.
const MAX_TOPOLOGY_FILES: usize = 2000;
/// Directories in one another in a topology: nodes, a node, its caches, a cache.
const MAX_TOPOLOGY_DEPTH: usize = 5;

const READ: u32 = 0o4;
const READ_AND_WRITE: u32 = 0o6;

/// Whose rights a run opens device nodes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceUser {
    /// A uid of its own, which can be given the groups of nodes.
    Own,
    /// The caller's uid, with the caller's groups.
    Caller,
}

/// What a run is shown of the host's GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpus {
    /// The nodes, as paths inside.
    pub nodes: Vec<PathBuf>,
    /// Groups of nodes that not every user may open.
    pub groups: Vec<u32>,
    /// What is not as it should be: each a sentence without a full stop.
    pub lacking: Vec<String>,
}

impl Gpus {
    /// The description of the devices for a run that has them.
    pub(in crate::isolate) fn grant(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.display().to_string()).collect();
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let member = match &groups[..] {
            [] => String::new(),
            [one] => format!(", and the group {one} that opens them"),
            _ => format!(", and the groups {} that open them", groups.join(", ")),
        };
        format!(
            "the run was given the GPU: {}{member}: its driver is reached without a wall",
            nodes.join(", ")
        )
    }
}

/// The GPUs of the host that a run can be given.
///
/// # Errors
/// There is none that it could open.
pub(super) fn find(host: &HostFiles, user: DeviceUser) -> Result<Gpus, FilesError> {
    let mut gpus = Gpus::default();
    let device = Path::new("/dev");
    let names = host.names(device, &["kfd", "nvidia"]);
    let known =
        names.iter().filter(|name| NAMED.iter().any(|known| name == known) || is_numbered(name, "nvidia"));
    for name in known {
        gpus.consider(host, &device.join(name), READ_AND_WRITE, user);
    }
    for (directory, beginning) in DIRECTORIES {
        let directory = Path::new(directory);
        for name in host.names(directory, &[beginning]).iter().filter(|name| is_numbered(name, beginning)) {
            // A capability is held by having its node open for reading.
            let wanted = if beginning == "nvidia-cap" { READ } else { READ_AND_WRITE };
            gpus.consider(host, &directory.join(name), wanted, user);
        }
    }
    if !gpus.nodes.iter().any(|node| computes(node)) {
        let found = match &gpus.lacking[..] {
            [] => {
                "it has none of /dev/nvidia0, /dev/nvidia1, … (NVIDIA), /dev/kfd and /dev/dri/renderD* (AMD)"
                    .to_owned()
            }
            lacking => lacking.join("; "),
        };
        return Err(FilesError::NoGpu { found });
    }
    if gpus.nodes.iter().any(|node| is_nvidia(node)) && !gpus.has("/dev/nvidia-uvm") {
        let reason = "/dev/nvidia-uvm, which CUDA needs, is not there or closed to the run: load it with `nvidia-modprobe -u -c 0`";
        gpus.lacking.push(reason.to_owned());
    }
    Ok(gpus)
}

/// Shows the nodes, and the other files that their libraries read.
pub(super) fn add(tree: &mut MountTree, host: &HostFiles, user: DeviceUser) -> Result<Gpus, FilesError> {
    let mut gpus = find(host, user)?;
    for target in gpus.nodes.iter().cloned() {
        tree.add(Mount::Device { target });
    }
    let modules = Path::new("/sys/module");
    for name in MODULES {
        copy(tree, host, &modules.join(name).join("initstate"));
    }
    let machine = Path::new("/sys/devices/system");
    for name in MACHINE {
        copy(tree, host, &machine.join(name));
    }
    for node in host.names(&machine.join("node"), &["node"]).iter().filter(|name| is_numbered(name, "node")) {
        for name in OF_MEMORY_NODE {
            copy(tree, host, &machine.join("node").join(node).join(name));
        }
    }
    add_pci(tree, host);
    if gpus.has("/dev/kfd") {
        let mut left = MAX_TOPOLOGY_FILES;
        copy_all(tree, host, Path::new(TOPOLOGY), MAX_TOPOLOGY_DEPTH, &mut left);
        link(tree, host, Path::new("/sys/class/kfd/kfd"));
        if left == 0 {
            gpus.lacking
                .push(format!("{TOPOLOGY} has more than {MAX_TOPOLOGY_FILES} files, and some are left out"));
        }
    }
    Ok(gpus)
}

impl Gpus {
    fn has(&self, node: &str) -> bool {
        self.nodes.iter().any(|known| known == Path::new(node))
    }

    /// Takes a node if it is one, and the run can open it.
    fn consider(&mut self, host: &HostFiles, path: &Path, wanted: u32, user: DeviceUser) {
        let Ok(found) = host.resolve(path) else { return };
        // A link could lead to any device.
        if !found.links.is_empty() || !found.metadata.file_type().is_char_device() {
            return;
        }
        match opening(path, &found.metadata, wanted, user) {
            Opening::ByEveryUser => {}
            Opening::ByGroup(group) if self.groups.contains(&group) => {}
            Opening::ByGroup(group) => self.groups.push(group),
            // A node for administrators' capabilities; the other nodes are for every user.
            Opening::Closed if wanted == READ => return,
            Opening::Closed => {
                let (mode, uid, gid) =
                    (found.metadata.mode() & 0o777, found.metadata.uid(), found.metadata.gid());
                let path = path.display();
                let reason = format!(
                    "{path} is not given, for a run cannot open it: its mode is {mode:04o}, its owner {uid}, its group {gid}; \
                     give it a group of its own that may read and write"
                );
                self.lacking.push(reason);
                return;
            }
        }
        self.nodes.push(path.to_path_buf());
    }
}

/// By what a run can open a node.
#[derive(Debug, PartialEq, Eq)]
enum Opening {
    ByEveryUser,
    ByGroup(u32),
    Closed,
}

fn opening(path: &Path, found: &Metadata, wanted: u32, user: DeviceUser) -> Opening {
    match user {
        DeviceUser::Own => opening_by_mode(found.mode(), found.gid(), wanted),
        DeviceUser::Caller => {
            let access = if wanted == READ { Access::READ_OK } else { Access::READ_OK | Access::WRITE_OK };
            match accessat(CWD, path, access, AtFlags::EACCESS) {
                Ok(()) => Opening::ByEveryUser,
                Err(_) => Opening::Closed,
            }
        }
    }
}

/// For a uid that owns nothing.
fn opening_by_mode(mode: u32, group: u32, wanted: u32) -> Opening {
    if mode & wanted == wanted {
        Opening::ByEveryUser
    } else if mode >> 3 & wanted == wanted && group != 0 {
        // Root's own group would open far more than this.
        Opening::ByGroup(group)
    } else {
        Opening::Closed
    }
}

/// Whether a name is this beginning and a number.
fn is_numbered(name: &OsStr, beginning: &str) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(beginning));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_nvidia(node: &Path) -> bool {
    node.parent() == Some(Path::new("/dev"))
        && node.file_name().is_some_and(|name| is_numbered(name, "nvidia"))
}

/// Whether the node can be used to compute; the other nodes only support such nodes.
fn computes(node: &Path) -> bool {
    is_nvidia(node) || node == Path::new("/dev/kfd") || node.starts_with("/dev/dri")
}

/// Shows the files of the GPUs on the PCI bus, and by which node each is reached.
fn add_pci(tree: &mut MountTree, host: &HostFiles) {
    let bus = Path::new("/sys/bus/pci/devices");
    for name in host.names(bus, &[""]) {
        let Some(device) = host.canonical(&bus.join(&name)) else { continue };
        let is = |file: &str, beginnings: &[&str]| {
            let text = host.text(&device.join(file)).unwrap_or_default();
            beginnings.iter().any(|beginning| text.starts_with(beginning))
        };
        if !is("vendor", &VENDORS) || !is("class", &CLASSES) {
            continue;
        }
        for file in OF_PCI {
            copy(tree, host, &device.join(file));
        }
        link(tree, host, &bus.join(&name));
        link(tree, host, &device.join("subsystem"));
        let drm = device.join("drm");
        for node in host.names(&drm, &["renderD"]).iter().filter(|name| is_numbered(name, "renderD")) {
            let node = drm.join(node);
            copy(tree, host, &node.join("dev"));
            copy(tree, host, &node.join("uevent"));
            link(tree, host, &node.join("device"));
            if let Some(number) = host.text(&node.join("dev")) {
                link(tree, host, &Path::new("/sys/dev/char").join(number.trim_end()));
            }
        }
    }
}

/// Copies a file that every user may read. Returns whether it did.
fn copy(tree: &mut MountTree, host: &HostFiles, path: &Path) -> bool {
    let found = host.resolve(path).ok().filter(|found| found.links.is_empty());
    if !found.is_some_and(|found| found.metadata.is_file() && found.metadata.mode() & 0o004 != 0) {
        return false;
    }
    let Some(mut contents) = host.bytes(path) else { return false };
    if path.file_name() == Some(OsStr::new("config")) {
        contents.truncate(CONFIG_BYTES);
    }
    tree.add(Mount::Synthetic { target: path.to_path_buf(), contents: contents.into() });
    true
}

/// Copies the files below a directory, as long as any are left; follows no links.
fn copy_all(tree: &mut MountTree, host: &HostFiles, directory: &Path, depth: usize, left: &mut usize) {
    for name in host.names(directory, &[""]) {
        let path = directory.join(name);
        let Ok(found) = host.resolve(&path) else { continue };
        if !found.links.is_empty() || *left == 0 {
            continue;
        }
        if found.metadata.is_dir() && depth > 0 {
            copy_all(tree, host, &path, depth - 1, left);
        } else if copy(tree, host, &path) {
            *left -= 1;
        }
    }
}

/// Makes a link as the host has it.
fn link(tree: &mut MountTree, host: &HostFiles, path: &Path) {
    let has_canonical_parent = path
        .parent()
        .and_then(|parent| host.resolve(parent).ok())
        .is_some_and(|parent| parent.links.is_empty());
    if let Some(points_to) = host.link(path).filter(|_| has_canonical_parent) {
        tree.add(Mount::Symlink { target: path.to_path_buf(), points_to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_follows_the_beginning() {
        let is = |name: &str| is_numbered(OsStr::new(name), "nvidia");
        assert_eq!(["nvidia0", "nvidia15"].map(is), [true; 2]);
        assert_eq!(["nvidia", "nvidia-fs", "nvidia0p1", "nvidia-nvlink", "nvidia٣"].map(is), [false; 5]);
    }

    #[test]
    fn own_uid_opens_nodes_by_mode_or_non_root_group() {
        let by = |mode: u32, group| opening_by_mode(0o020_000 | mode, group, READ_AND_WRITE);
        assert_eq!([by(0o666, 0), by(0o606, 44)], [Opening::ByEveryUser, Opening::ByEveryUser]);
        assert_eq!(by(0o660, 44), Opening::ByGroup(44));
        assert_eq!(
            [by(0o660, 0), by(0o600, 44), by(0o640, 44), by(0o444, 44)].map(|by| by == Opening::Closed),
            [true; 4]
        );
        assert_eq!(opening_by_mode(0o020_444, 0, READ), Opening::ByEveryUser);
    }

    #[test]
    fn what_was_given_is_named_with_the_groups_that_open_it() {
        let mut gpus =
            Gpus { nodes: vec!["/dev/kfd".into(), "/dev/dri/renderD128".into()], ..Gpus::default() };
        let expected =
            "the run was given the GPU: /dev/kfd, /dev/dri/renderD128: its driver is reached without a wall";
        assert_eq!(gpus.grant(), expected);
        gpus.groups = vec![44, 109];
        assert!(gpus.grant().contains("renderD128, and the groups 44, 109 that open them: its driver"));
    }
}
