//! The GPUs of made-up hosts. Their nodes are those of /dev/null, which only root can make; where
//! it may not, what depends on nodes is left to the hosts that can.

use super::*;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::os::unix::fs::chown;

impl World {
    /// Makes a node of this mode and group; whether this user may.
    fn node(&self, path: &str, mode: u32, group: u32) -> bool {
        self.directory(Path::new(path).parent().unwrap().to_str().unwrap());
        let node = self.on_disk(path);
        let made = mknodat(CWD, &node, FileType::CharacterDevice, Mode::from_raw_mode(mode), makedev(1, 3));
        made.is_ok() && {
            fs::set_permissions(&node, fs::Permissions::from_mode(mode)).unwrap();
            chown(&node, Some(0), Some(group)).is_ok()
        }
    }

    /// A GPU and a network card on the PCI bus.
    fn pci(&self) {
        let bridge = "/sys/devices/pci0000:00/0000:00:01.0";
        for (slot, vendor, class) in
            [("0000:01:00.0", "0x1002", "0x030000"), ("0000:02:00.0", "0x8086", "0x020000")]
        {
            let device = format!("{bridge}/{slot}");
            self.text(&format!("{device}/vendor"), &format!("{vendor}\n"));
            self.text(&format!("{device}/class"), &format!("{class}\n"));
            self.text(&format!("{device}/config"), &"c".repeat(256));
            self.text(&format!("{device}/resource0"), "registers");
            self.link(
                &format!("/sys/bus/pci/devices/{slot}"),
                &format!("../../../devices/pci0000:00/0000:00:01.0/{slot}"),
            );
        }
        let node = format!("{bridge}/0000:01:00.0/drm/renderD128");
        self.text(&format!("{node}/dev"), "226:128\n");
        self.link(&format!("{node}/device"), "../../../0000:01:00.0");
        self.link(
            "/sys/dev/char/226:128",
            "../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/drm/renderD128",
        );
    }

    fn gpus(&mut self) -> (FilesPlan, Gpus) {
        self.gpus = Some(DeviceUser::Own);
        let plan = self.plan("bash").unwrap();
        let gpus = plan.gpus.clone().unwrap();
        (plan, gpus)
    }
}

fn devices(plan: &FilesPlan) -> Vec<&str> {
    let nodes = plan.mounts.iter().filter(|mount| matches!(mount, Mount::Device { .. }));
    nodes.map(|mount| mount.target().to_str().unwrap()).collect()
}

const ORDINARY: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

#[test]
fn host_without_gpu_names_the_expected_nodes() {
    let mut world = World::new();
    // Neither is a device.
    world.text("/dev/nvidia0", "");
    world.link("/dev/nvidia1", "/dev/null");
    world.gpus = Some(DeviceUser::Own);
    let error = world.plan("bash").unwrap_err();
    assert_eq!(error.exit_code(), 125);
    for part in ["/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD*", "do without"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn gpu_nodes_are_shown_only_on_request() {
    let mut world = World::new();
    let shown = ["kfd", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia11", "nvidiactl"];
    let others = [
        "kvm",
        "mem",
        "nvidia-fs0",
        "nvidia-nvlink",
        "nvidia0x",
        "sda",
        "dri/card0",
        "dri/renderD",
        "nvidia-caps/other1",
    ];
    for name in shown.iter().chain(&others) {
        if !world.node(&format!("/dev/{name}"), 0o666, 0) {
            return;
        }
    }
    world.node("/dev/nvidia-caps/nvidia-cap1", 0o400, 0);
    world.node("/dev/nvidia-caps/nvidia-cap2", 0o444, 0);
    world.link("/dev/nvidia2", "kvm");
    assert_eq!(devices(&world.plan("bash").unwrap()), ORDINARY);
    let (plan, gpus) = world.gpus();
    let mut expected: Vec<String> = shown.iter().map(|name| format!("/dev/{name}")).collect();
    expected.push("/dev/nvidia-caps/nvidia-cap2".to_owned());
    let mut given: Vec<&str> = devices(&plan).into_iter().filter(|path| !ORDINARY.contains(path)).collect();
    given.sort_unstable();
    expected.sort_unstable();
    assert_eq!(given, expected);
    assert_eq!((gpus.nodes.len(), gpus.groups, gpus.lacking), (expected.len(), vec![], vec![]));
}

#[test]
fn closed_gpu_node_is_reported_and_not_granted() {
    let mut world = World::new();
    if !world.node("/dev/kfd", 0o660, 109) {
        return;
    }
    world.node("/dev/dri/renderD128", 0o660, 109);
    world.node("/dev/dri/renderD129", 0o600, 109);
    world.node("/dev/nvidia0", 0o660, 0);
    let (plan, gpus) = world.gpus();
    assert_eq!(gpus.nodes, ["/dev/kfd", "/dev/dri/renderD128"].map(PathBuf::from));
    assert_eq!((gpus.groups, gpus.lacking.len()), (vec![109], 2));
    assert!(gpus.lacking[0].starts_with("/dev/nvidia0 is not given") && gpus.lacking[0].contains("0660"));
    assert!(gpus.lacking[1].contains("/dev/dri/renderD129") && gpus.lacking[1].contains("0600"));
    assert!(!devices(&plan).contains(&"/dev/nvidia0"));
}

#[test]
fn gpu_without_the_cuda_node_is_reported() {
    let mut world = World::new();
    if !world.node("/dev/nvidia0", 0o666, 0) {
        return;
    }
    let (_, gpus) = world.gpus();
    assert!(
        matches!(&gpus.lacking[..], [one] if one.contains("/dev/nvidia-uvm") && one.contains("nvidia-modprobe"))
    );
}

#[test]
fn sys_files_that_libraries_read_are_copied() {
    let mut world = World::new();
    if !world.node("/dev/kfd", 0o666, 0) {
        return;
    }
    world.pci();
    world.text("/sys/module/amdgpu/initstate", "live\n");
    world.text("/sys/module/amdgpu/parameters/x", "1\n");
    world.text("/sys/devices/system/node/node0/cpumap", "f\n");
    world.text("/sys/devices/virtual/kfd/kfd/topology/nodes/1/caches/0/properties", "level 1\n");
    world.link("/sys/class/kfd/kfd", "../../devices/virtual/kfd/kfd");
    let (plan, _) = world.gpus();
    let device = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    let shown = [
        "bus/pci/devices/0000:01:00.0",
        "class/kfd/kfd",
        "dev/char/226:128",
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0/class",
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0/config",
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0/drm/renderD128/dev",
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0/drm/renderD128/device",
        "devices/pci0000:00/0000:00:01.0/0000:01:00.0/vendor",
        "devices/system/node/node0/cpumap",
        "devices/virtual/kfd/kfd/topology/nodes/1/caches/0/properties",
        "module/amdgpu/initstate",
    ];
    assert_eq!(shown_below(&plan, "/sys"), shown);
    let contents = |path: &str| {
        plan.mounts.iter().find_map(|mount| match mount {
            Mount::Synthetic { target, contents } if target == Path::new(path) => Some(contents.to_vec()),
            _ => None,
        })
    };
    assert_eq!(contents(&format!("{device}/config")).unwrap().len(), 64, "as much as everybody may read");
    assert_eq!(contents("/sys/module/amdgpu/initstate").unwrap(), b"live\n");
    let by_number = Path::new("/sys/dev/char/226:128/device/vendor");
    assert!(inside(&plan, world.root.path(), by_number).is_some(), "the links lead to the copies");
}
