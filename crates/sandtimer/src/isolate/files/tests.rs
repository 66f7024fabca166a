//! Plans over made-up hosts in temporary directories, and one over the machine the tests run on.
//!
//! Every plan made here is also walked as the kernel would walk the built tree: its steps can be
//! applied in order, no source is private, and the program to execute is reached.

use super::*;
use crate::isolate::machine::MachineFiles;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

mod devices;
mod installations;
mod paths;

/// A host below a temporary directory, and a request to plan for.
struct World {
    root: tempfile::TempDir,
    path: String,
    variables: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    start_in: Option<PathBuf>,
    workspaces: Vec<PathBuf>,
    extra: Vec<PathBuf>,
    world_readable: Vec<PathBuf>,
    workspace_of_its_own: Option<PathBuf>,
    network: bool,
    show_credentials: bool,
    is_callers: bool,
    temporary: Option<PathBuf>,
    gpus: Option<DeviceUser>,
}

const HOME_OF_ANN: &str = "/home/ann";

impl World {
    fn new() -> Self {
        let world = Self {
            root: tempfile::tempdir().unwrap(),
            path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            variables: Vec::new(),
            cwd: PathBuf::from("/home/ann/project"),
            start_in: None,
            workspaces: Vec::new(),
            extra: Vec::new(),
            world_readable: Vec::new(),
            workspace_of_its_own: None,
            network: false,
            show_credentials: false,
            is_callers: false,
            temporary: None,
            gpus: None,
        };
        for directory in ["/usr/local/bin", "/usr/lib", "/opt", "/tmp", "/var/tmp", "/home/ann/project"] {
            world.directory(directory);
        }
        world.link("/bin", "usr/bin");
        world.link("/lib64", "usr/lib64");
        world.program("/usr/bin/env", &elf(&[], "", None));
        world.program("/usr/bin/bash", &elf(&[], "", None));
        world.program("/usr/bin/sh", &elf(&[], "", None));
        world.text("/etc/passwd", "ann:x:1000:1000:Ann Smith:/home/ann:/bin/bash\n");
        world.text("/home/ann/.ssh/id_ed25519", "secret");
        world.text("/home/ann/.netrc", "secret");
        world
    }

    fn on_disk(&self, path: &str) -> PathBuf {
        self.root.path().join(path.strip_prefix('/').unwrap())
    }

    fn directory(&self, path: &str) {
        fs::create_dir_all(self.on_disk(path)).unwrap();
    }

    fn text(&self, path: &str, contents: &str) {
        self.directory(Path::new(path).parent().unwrap().to_str().unwrap());
        fs::write(self.on_disk(path), contents).unwrap();
    }

    fn program(&self, path: &str, contents: &[u8]) {
        self.directory(Path::new(path).parent().unwrap().to_str().unwrap());
        fs::write(self.on_disk(path), contents).unwrap();
        fs::set_permissions(self.on_disk(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        self.directory(Path::new(path).parent().unwrap().to_str().unwrap());
        symlink(to, self.on_disk(path)).unwrap();
    }

    /// A Python installation as `make install` leaves it.
    fn python(&self, prefix: &str, version: &str) {
        self.program(&format!("{prefix}/bin/python{version}"), &elf(&[], "", None));
        self.link(&format!("{prefix}/bin/python3"), &format!("python{version}"));
        self.text(&format!("{prefix}/lib/python{version}/os.py"), "");
        self.text(&format!("{prefix}/share/man/python.1"), "");
    }

    /// pyenv in Ann's home, with a shim for `python3`.
    fn pyenv(&self, versions: &[&str]) {
        for version in versions {
            let minor = version.rsplit_once('.').unwrap().0;
            self.python(&format!("/home/ann/.pyenv/versions/{version}"), minor);
        }
        self.program("/home/ann/.pyenv/shims/python3", b"#!/usr/bin/env bash\nexec pyenv exec python3\n");
        self.program("/home/ann/.pyenv/libexec/pyenv", b"#!/usr/bin/env bash\n");
        self.text("/home/ann/.pyenv/version", &format!("{}\n", versions[0]));
    }

    /// rustup in Ann's home with these toolchains, the first one being the default.
    fn rustup(&self, toolchains: &[&str]) {
        for toolchain in toolchains {
            let directory = format!("/home/ann/.rustup/toolchains/{toolchain}");
            self.program(&format!("{directory}/bin/cargo"), &elf(&["librustc.so"], "$ORIGIN/../lib", None));
            self.program(&format!("{directory}/lib/librustc.so"), &elf(&[], "", None));
            self.text(&format!("{directory}/lib/rustlib/components"), "");
        }
        self.program("/home/ann/.cargo/bin/rustup", &elf(&[], "", None));
        self.link("/home/ann/.cargo/bin/cargo", "rustup");
        self.text("/home/ann/.cargo/credentials.toml", "secret");
        self.text("/home/ann/.cargo/registry/index", "");
        let settings = format!(
            "default_toolchain = \"{}\"\n[overrides]\n\"/srv/nightly\" = \"nightly\"\n",
            toolchains[0]
        );
        self.text("/home/ann/.rustup/settings.toml", &settings);
    }

    fn variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.into(), value.into()));
    }

    fn plan(&self, command: &str) -> Result<FilesPlan, FilesError> {
        self.plan_command(OsStr::new(command))
    }

    fn plan_command(&self, command: &OsStr) -> Result<FilesPlan, FilesError> {
        let homes = home_directories(&fs::read(self.on_disk("/etc/passwd")).unwrap(), None);
        let start = match &self.workspace_of_its_own {
            Some(directory) if self.is_callers => StartDirectory::CallersDirectory(directory),
            Some(directory) => StartDirectory::Workspace(directory),
            None => StartDirectory::CurrentDirectory,
        };
        let request = FilesRequest {
            root: self.root.path(),
            command: Some(command),
            path_variable: OsStr::new(&self.path),
            variables: &self.variables,
            own: &[],
            machine: &MachineFiles::default(),
            host_cwd: &self.cwd,
            start,
            cwd: self.start_in.as_deref(),
            workspaces: &self.workspaces,
            homes: &homes,
            extra_read_only: &self.extra,
            follows_package_links: false,
            show_credentials: self.show_credentials,
            temporary: self.temporary.as_deref(),
            world_readable: &self.world_readable,
            network: self.network,
            ptys: 0,
            gpus: self.gpus,
        };
        let plan = plan_files(&request)?;
        check(&plan, self.root.path(), &homes);
        Ok(plan)
    }
}

/// What must hold of every plan.
fn check(plan: &FilesPlan, root: &Path, homes: &[PathBuf]) {
    assert_private_stays_private(plan, homes);
    assert_can_be_built(plan);
    assert!(inside(plan, root, &plan.cwd).is_some(), "the run starts nowhere: {:?}", plan.cwd);
    let executable = plan.executable.as_ref().expect("these plans have a command");
    assert!(executable.path.is_absolute());
    let file = inside(plan, root, &executable.path);
    assert!(
        file.as_ref().is_some_and(|file| file.is_file()),
        "{:?} is not reached: {file:?}, {:#?}",
        executable.path,
        plan.mounts
    );
}

fn assert_private_stays_private(plan: &FilesPlan, homes: &[PathBuf]) {
    let names =
        [".ssh", ".aws", ".config/gh", ".netrc", ".npmrc", ".cargo/credentials.toml", ".cargo/registry"];
    for mount in &plan.mounts {
        let Mount::Bind { source, .. } = mount else { continue };
        // Accounts of services live in system directories.
        for home in
            homes.iter().filter(|home| !["/usr", "/bin", "/opt"].iter().any(|tree| home.starts_with(tree)))
        {
            assert!(!home.starts_with(source), "{mount:?} shows the home {home:?}");
            for private in names.iter().map(|name| home.join(name)) {
                assert!(!private.starts_with(source), "{mount:?} shows {private:?}");
                assert!(!source.starts_with(&private), "{mount:?} shows {private:?}");
            }
        }
    }
}

/// Each step's parent is there when the step is applied, and a name is made only where one can be.
fn assert_can_be_built(plan: &FilesPlan) {
    let mut built: Vec<&Mount> = Vec::new();
    for mount in &plan.mounts {
        let target = mount.target();
        assert!(target.is_absolute());
        assert!(!built.iter().any(|step| step.target() == target), "{target:?} is made twice");
        let innermost = built.iter().filter(|step| target.starts_with(step.target()));
        let holder = innermost.max_by_key(|step| step.target().components().count());
        match holder {
            None => assert_eq!(target.parent(), Some(Path::new("/")), "nothing leads to {mount:?}"),
            Some(Mount::Directory { target: holder } | Mount::Tmpfs { target: holder, .. }) => {
                assert_eq!(target.parent(), Some(holder.as_path()), "nothing leads to {mount:?}");
            }
            // The engine makes mount points in a shared temporary directory.
            Some(Mount::Bind { target: holder, .. }) if holder == Path::new(HOME) => {
                assert!(matches!(mount, Mount::Bind { .. } | Mount::Tmpfs { .. }), "{mount:?} in {holder:?}");
            }
            Some(Mount::Bind { writable, .. }) => {
                let widens = !writable && matches!(mount, Mount::Bind { writable: true, .. });
                let changes = widens || matches!(mount, Mount::Tmpfs { .. });
                let hides = matches!(mount, Mount::Bind { source, .. } if source == Path::new("/dev/null"));
                assert!(changes || hides, "{mount:?} in {holder:?}");
            }
            Some(holder) => panic!("{mount:?} cannot be made in {holder:?}"),
        }
        built.push(mount);
    }
}

/// Walks `path` through the planned tree; where it ends on disk, or the plan's own directory.
fn inside(plan: &FilesPlan, root: &Path, path: &Path) -> Option<PathBuf> {
    let below_root = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let mut rest: Vec<OsString> =
        path.components().rev().map(|part| part.as_os_str().to_os_string()).collect();
    let (mut here, mut on_disk, mut steps) = (PathBuf::from("/"), root.to_path_buf(), 0);
    while let Some(name) = rest.pop() {
        steps += 1;
        assert!(steps < 400, "{path:?} goes in circles");
        if name == "/" {
            here = PathBuf::from("/");
            continue;
        }
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let holder =
            next.ancestors().find_map(|path| plan.mounts.iter().find(|mount| mount.target() == path));
        let to = match holder {
            Some(Mount::Symlink { points_to, .. }) => Some(points_to.clone()),
            Some(Mount::Bind { source, target, .. }) => {
                let source = source.join(next.strip_prefix(target).unwrap());
                let source: PathBuf = source.components().collect();
                on_disk = below_root(&source);
                let metadata = on_disk.symlink_metadata().ok()?;
                metadata.is_symlink().then(|| on_disk.read_link().unwrap())
            }
            Some(mount) if mount.target() == next => {
                on_disk = root.to_path_buf();
                None
            }
            _ => return None,
        };
        match to {
            Some(to) => rest.extend(to.components().rev().map(|part| part.as_os_str().to_os_string())),
            None => here = next,
        }
    }
    Some(on_disk)
}

fn bind<'p>(plan: &'p FilesPlan, path: &str) -> Option<&'p Mount> {
    plan.mounts.iter().find(|mount| mount.target() == Path::new(path) && matches!(mount, Mount::Bind { .. }))
}

fn is_writable(plan: &FilesPlan, path: &str) -> Option<bool> {
    bind(plan, path).map(|mount| matches!(mount, Mount::Bind { writable: true, .. }))
}

/// Targets below `path`, the directories that only lead somewhere left out.
fn shown_below(plan: &FilesPlan, path: &str) -> Vec<String> {
    let shown = plan.mounts.iter().filter(|mount| !matches!(mount, Mount::Directory { .. }));
    let below = shown.filter_map(|mount| mount.target().strip_prefix(path).ok());
    below.map(|rest| rest.display().to_string()).collect()
}

fn executable(plan: &FilesPlan) -> &str {
    plan.executable.as_ref().unwrap().path.to_str().unwrap()
}

/// A small ELF file that names these libraries, this search path and this interpreter.
fn elf(needed: &[&str], search: &str, interpreter: Option<&str>) -> Vec<u8> {
    const STRINGS: u64 = 0x400;
    const DYNAMIC: u64 = 0x800;
    const INTERPRETER: u64 = 0xc00;
    let mut strings = vec![0_u8];
    let mut dynamic: Vec<(u64, u64)> = vec![(5, STRINGS + 0x10000)];
    let texts = needed.iter().map(|name| (1, *name)).chain((!search.is_empty()).then_some((29, search)));
    for (tag, text) in texts {
        dynamic.push((tag, strings.len() as u64));
        strings.extend(text.bytes().chain([0]));
    }
    dynamic.push((0, 0));
    let mut file = vec![0_u8; 0x1000];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut put = |at: u64, value: &[u8]| {
        let at = usize::try_from(at).unwrap();
        file[at..at + value.len()].copy_from_slice(value);
    };
    put(32, &64_u64.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &3_u16.to_le_bytes());
    let dynamic_bytes = dynamic.len() as u64 * 16;
    let headers = [(1_u32, 0, 0x10000_u64, 0x1000), (2, DYNAMIC, 0, dynamic_bytes), (3, INTERPRETER, 0, 64)];
    for (index, (kind, offset, address, length)) in (0_u64..).zip(headers) {
        let at = 64 + index * 56;
        // Without an interpreter its header is a null one.
        let kind = if kind == 3 && interpreter.is_none() { 0 } else { kind };
        put(at, &kind.to_le_bytes());
        put(at + 8, &offset.to_le_bytes());
        put(at + 16, &address.to_le_bytes());
        put(at + 32, &length.to_le_bytes());
    }
    put(STRINGS, &strings);
    for (index, (tag, value)) in (0_u64..).zip(dynamic) {
        put(DYNAMIC + index * 16, &tag.to_le_bytes());
        put(DYNAMIC + index * 16 + 8, &value.to_le_bytes());
    }
    put(INTERPRETER, interpreter.unwrap_or_default().as_bytes());
    file
}

#[test]
fn shows_the_system_without_its_users() {
    let world = World::new();
    world.text("/etc/ld.so.cache", &"x".repeat(20_000));
    world.text("/etc/timezone", "Etc/UTC\n");
    world.text("/usr/share/zoneinfo/UTC", "");
    world.link("/etc/localtime", "/usr/share/zoneinfo/UTC");
    world.text("/etc/shadow", "secret");
    world.text("/etc/ssl/certs/ca.pem", "");
    world.text("/etc/ssl/private/key.pem", "secret");
    world.text("/run/docker.sock", "");
    world.text("/var/log/syslog", "");
    let plan = world.plan("bash").unwrap();
    assert!(
        plan.mounts.contains(&Mount::Symlink { target: "/bin".into(), points_to: "usr/bin".into() }),
        "{plan:#?}"
    );
    assert_eq!(is_writable(&plan, "/usr"), Some(false));
    assert!(bind(&plan, "/etc/ssl/certs").is_some() && bind(&plan, "/etc/ld.so.cache").is_some());
    let timezone = Mount::Synthetic { target: "/etc/timezone".into(), contents: b"Etc/UTC\n".into() };
    assert!(plan.mounts.contains(&timezone), "{plan:#?}");
    for absent in
        ["/etc/shadow", "/etc/ssl/private/key.pem", "/run", "/run/docker.sock", "/var/log", "/home/ann/.ssh"]
    {
        assert_eq!(inside(&plan, world.root.path(), Path::new(absent)), None, "{absent} is seen");
    }
    let accounts = Mount::Accounts { target: "/etc/passwd".into(), file: AccountFile::Passwd };
    assert!(plan.mounts.contains(&accounts), "{plan:#?}");
    let passwd = AccountFile::Passwd.contents(1000, 1000);
    assert!(passwd.contains("sandbox:x:1000:1000:") && !passwd.contains("Ann"), "{passwd}");
}

#[test]
fn credentials_in_a_home_below_opt_are_covered() {
    let mut world = World::new();
    world.text("/etc/passwd", "app:x:1:1::/opt/app:\nsync:x:2:2::/bin:\n");
    world.text("/opt/app/.ssh/id_ed25519", "secret");
    world.text("/opt/app/.netrc", "secret");
    world.python("/opt/app/.pyenv/versions/3.11.7", "3.11");
    world.path = "/opt/app/.pyenv/versions/3.11.7/bin:/usr/bin".into();
    let plan = world.plan("python3").unwrap();
    assert_eq!(shown_below(&plan, "/opt"), ["", "app/.netrc", "app/.ssh"]);
    assert_eq!(inside(&plan, world.root.path(), Path::new("/opt/app/.ssh/id_ed25519")), None);
    let Some(Mount::Bind { source, .. }) = bind(&plan, "/opt/app/.netrc") else { panic!("{plan:#?}") };
    assert_eq!(source, Path::new("/dev/null"));
}

#[test]
fn credentials_below_shown_directories_are_covered() {
    let mut world = World::new();
    let project = "/home/ann/project";
    let secrets = [
        ".ssh/id_ed25519",
        "deploy/keys/.aws/credentials",
        "tools/.docker/config.json",
        "tools/.config/gh/hosts.yml",
        "out/.netrc",
        "out/vendor/.kube/config",
    ];
    for secret in secrets {
        world.text(&format!("{project}/{secret}"), "secret");
    }
    world.text(&format!("{project}/real/pypirc"), "secret");
    world.link(&format!("{project}/real/.pypirc"), "pypirc");
    world.text(&format!("{project}/tools/.docker/Dockerfile"), "FROM scratch");
    world.text(&format!("{project}/.env"), "API_TOKEN=x");
    world.text(&format!("{project}/.npmrc"), "registry=https://registry.npmjs.org/");
    world.text(&format!("{project}/.git/config"), "url = https://ann:x@example.org/x.git");
    world.workspaces = vec!["out".into()];
    let plan = world.plan("bash").unwrap();
    let visible = |plan: &FilesPlan, path: &str| {
        inside(plan, world.root.path(), &Path::new(project).join(path)).filter(|file| file.exists())
    };
    for secret in secrets.iter().chain(&["real/pypirc"]) {
        let found = visible(&plan, secret);
        let covered = found.as_ref().is_none_or(|file| file.ends_with("dev/null"));
        assert!(covered, "{secret}: {found:?}");
    }
    for stays in ["tools/.docker/Dockerfile", ".env", ".npmrc", ".git/config"] {
        assert!(visible(&plan, stays).is_some(), "{stays}");
    }
    let notes: Vec<&str> = plan
        .notes
        .iter()
        .filter(|note| note.kind == NoteKind::Credentials)
        .map(|note| note.text.as_str())
        .collect();
    assert!(
        notes.iter().any(|note| note.contains("/.env"))
            && notes.iter().any(|note| note.contains("/.git/config"))
    );
    assert_eq!(notes.len(), 2, "{notes:?}");
    // The control: without the layer each of them is read.
    world.show_credentials = true;
    let plan = world.plan("bash").unwrap();
    for secret in secrets {
        let found = inside(&plan, world.root.path(), &Path::new(project).join(secret));
        assert!(found.is_some_and(|file| file.is_file()), "{secret}");
    }
}

#[test]
fn credentials_in_callers_workspace_are_covered() {
    let mut world = World::new();
    // A run that worked there before has moved some to where packages lie.
    let secrets = [".ssh/id_ed25519", "sub/.aws/credentials", "node_modules/sub/.aws/credentials"];
    for secret in secrets {
        world.text(&format!("/data/{secret}"), "secret");
    }
    world.text("/data/sub/config", "harmless");
    world.workspace_of_its_own = Some("/data".into());
    let visible = |world: &World, path: &str| {
        let plan = world.plan("bash").unwrap();
        inside(&plan, world.root.path(), &plan.cwd.join(path)).filter(|file| file.exists())
    };
    // The control: of a workspace that a server made, all is its runs' own.
    assert!(secrets.iter().all(|secret| visible(&world, secret).is_some()));
    world.is_callers = true;
    for secret in secrets {
        assert_eq!(visible(&world, secret), None, "{secret}");
    }
    assert!(visible(&world, "sub/config").is_some());
}

#[test]
fn directories_past_bound_of_search_are_noted() {
    let world = World::new();
    for number in 0..150 {
        world.text(&format!("/home/ann/project/{number:03}/.netrc"), "secret");
    }
    let plan = world.plan("bash").unwrap();
    let covered = shown_below(&plan, "/home/ann/project").len() - 1;
    let note = plan.notes.iter().find(|note| note.kind == NoteKind::Credentials).expect("a note");
    assert_eq!(covered, 128);
    assert!(note.text.contains("in 22 directories"), "{note:?}");
}

#[test]
fn a_resolver_only_with_network() {
    let mut world = World::new();
    world.text("/run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n");
    world.link("/etc/resolv.conf", "../run/systemd/resolve/stub-resolv.conf");
    world.text("/etc/hosts", "10.0.0.1 build-host\n");
    assert!(!world.plan("bash").unwrap().mounts.iter().any(|m| m.target() == Path::new("/etc/resolv.conf")));
    world.network = true;
    let plan = world.plan("bash").unwrap();
    let Some(Mount::Bind { source, .. }) = bind(&plan, "/etc/resolv.conf") else { panic!("{plan:#?}") };
    assert_eq!(source, Path::new("/run/systemd/resolve/stub-resolv.conf"));
    assert!(bind(&plan, "/etc/hosts").is_some());
}

#[test]
fn reports_commands_as_env_does() {
    let world = World::new();
    world.text("/home/ann/project/notes", "text");
    world.text("/usr/bin/readme", "text");
    world.program("/home/ann/project/broken", b"#!/usr/bin/nothing -x\n");
    let code = |command: &str| world.plan(command).unwrap_err().exit_code();
    assert_eq!([code("nothing"), code("./nothing"), code(""), code("./broken")], [127; 4]);
    assert_eq!([code("readme"), code("./notes"), code("/usr/bin"), code("/home/ann/project")], [126; 4]);
    let message = world.plan("nothing").unwrap_err().to_string();
    assert_eq!(message, "command `nothing` is not found: no `nothing` in /usr/local/bin, /usr/bin, /bin");
    // A later entry of PATH wins over an earlier one that is no program.
    world.text("/usr/local/bin/tool", "text");
    world.program("/usr/bin/tool", b"echo no first line\n");
    let plan = world.plan("tool").unwrap();
    assert_eq!(executable(&plan), "/usr/bin/tool");
    assert!(plan.executable.unwrap().needs_shell);
    assert!(!world.plan("bash").unwrap().executable.unwrap().needs_shell);
}

#[test]
fn home_directories_come_from_passwd_and_the_variable() {
    let passwd =
        b"root:x:0:0::/root:/bin/sh\nann:x:1:1::/home/ann:/bin/sh\nodd:x:2\n\nann2:x:1:1::/home/ann:\n";
    let homes = home_directories(passwd, Some(OsStr::new("/data/ann")));
    assert_eq!(homes, ["/data/ann", "/home/ann", "/root"].map(PathBuf::from));
    assert_eq!(home_directories(b"", Some(OsStr::new("relative"))), Vec::<PathBuf>::new());
}

#[test]
fn plans_for_this_machine() {
    let passwd = fs::read("/etc/passwd").unwrap();
    let homes = home_directories(&passwd, std::env::var_os("HOME").as_deref());
    let variables: Vec<_> = std::env::vars_os().collect();
    let path = std::env::var_os("PATH").unwrap();
    let directory = tempfile::tempdir().unwrap();
    // Each of these is here or its absence is reported as such; none may show a home.
    for command in ["sh", "env", "python3", "cargo", "node", "bash"] {
        let request = FilesRequest {
            root: Path::new("/"),
            command: Some(OsStr::new(command)),
            path_variable: &path,
            variables: &variables,
            host_cwd: directory.path(),
            start: StartDirectory::CurrentDirectory,
            cwd: None,
            workspaces: &[],
            homes: &homes,
            extra_read_only: &homes,
            follows_package_links: false,
            show_credentials: false,
            temporary: None,
            world_readable: &[],
            own: &[],
            machine: &MachineFiles::default(),
            network: true,
            ptys: 4,
            gpus: None,
        };
        match plan_files(&request) {
            Ok(plan) => {
                check(&plan, Path::new("/"), &homes);
                assert!(!executable(&plan).contains("/shims/"), "{}", executable(&plan));
                assert_eq!(plan.cwd, directory.path().canonicalize().unwrap());
            }
            Err(error) => {
                assert_eq!(error.exit_code(), 127, "{command}: {error}");
                assert!(!["sh", "env", "cargo"].contains(&command), "{error}");
            }
        }
    }
}
