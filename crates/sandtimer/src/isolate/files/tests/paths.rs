//! The current directory, the workspaces and the starting directory.

use super::*;
use std::os::unix::ffi::OsStrExt;

#[test]
fn current_directory_is_read_only_where_allowed() {
    for shown in ["/home/ann/project", "/home/ann/.config/nvim", "/srv/data", "/tmp/build/x", "/var/lib/app"]
    {
        let mut world = World::new();
        world.text(&format!("{shown}/.git/HEAD"), "");
        world.cwd = shown.into();
        let plan = world.plan("bash").unwrap();
        assert_eq!((is_writable(&plan, shown), plan.cwd.to_str()), (Some(false), Some(shown)));
        assert_eq!(plan.notes, [], "{shown}");
    }
}

#[test]
fn unmounted_current_directory_is_reported() {
    let cases = [
        ("/", "is the root of the file system"),
        ("/home", "belongs to the host's system (/home)"),
        ("/home/ann", "is a home directory"),
        ("/home/ann/.ssh", "may hold credentials or private data (/home/ann/.ssh)"),
        ("/home/ann/.config", "may hold credentials or private data"),
        ("/home/ann/.cargo", "may hold credentials or private data"),
        ("/srv", "holds the home directory /srv/bob"),
        ("/root", "is a home directory"),
        ("/etc", "belongs to the host's system (/etc)"),
        ("/etc/ssh", "belongs to the host's system (/etc)"),
        ("/var", "belongs to the host's system (/var)"),
        ("/run/user/1000", "belongs to the host's system (/run)"),
    ];
    for (path, reason) in cases {
        let mut world = World::new();
        world.text("/etc/passwd", "ann:x:1:1::/home/ann:\nbob:x:2:2::/srv/bob:\nnobody:x:3:3::/:\n");
        for directory in ["/srv/bob", path] {
            world.directory(directory);
        }
        world.cwd = path.into();
        let plan = world.plan("bash").unwrap();
        assert_eq!(plan.cwd, Path::new("/workspace"), "{path}");
        let [Note { kind: NoteKind::CurrentDirectory, text }] = &plan.notes[..] else {
            panic!("{:?}", plan.notes)
        };
        assert!(text.contains(reason) && text.ends_with("the run starts in an empty /workspace"), "{text}");
        assert_eq!(bind(&plan, path), None);
    }
    let mut world = World::new();
    world.cwd = "/gone".into();
    assert_eq!(world.plan("bash").unwrap().cwd, Path::new("/workspace"), "a deleted directory");
    world.cwd = "/tmp".into();
    let plan = world.plan("bash").unwrap();
    assert_eq!((plan.cwd.to_str(), plan.notes.len()), (Some("/tmp"), 1), "the run's own /tmp");
    world.cwd = "/usr/local/bin".into();
    let plan = world.plan("bash").unwrap();
    assert_eq!((plan.cwd.to_str(), bind(&plan, "/usr/local/bin")), (Some("/usr/local/bin"), None));
}

#[test]
fn workspaces_and_the_current_directory_compose() {
    // Workspace, current directory, and what is writable and read-only at these paths.
    type Case = (&'static str, &'static str, &'static [(&'static str, Option<bool>)]);
    let cases: [Case; 4] = [
        (
            "/home/ann/project/out",
            "/home/ann/project",
            &[("/home/ann/project", Some(false)), ("/home/ann/project/out", Some(true))],
        ),
        ("/home/ann/project", "/home/ann/project", &[("/home/ann/project", Some(true))]),
        (
            "/home/ann/project",
            "/home/ann/project/out",
            &[("/home/ann/project", Some(true)), ("/home/ann/project/out", None)],
        ),
        ("/opt/data", "/home/ann/project", &[("/opt", Some(false)), ("/opt/data", Some(true))]),
    ];
    for (workspace, cwd, expected) in cases {
        let mut world = World::new();
        world.directory("/home/ann/project/out");
        world.directory("/opt/data");
        world.cwd = cwd.into();
        world.workspaces = vec![workspace.into(), workspace.into()];
        world.extra = vec![workspace.into(), "/home/ann/project/out".into()];
        let plan = world.plan("bash").unwrap();
        for (path, writable) in expected {
            assert_eq!(
                is_writable(&plan, path),
                *writable,
                "{path} with {workspace} in {cwd}: {:#?}",
                plan.mounts
            );
        }
        assert_eq!(plan.cwd, Path::new(cwd));
    }
}

#[test]
fn a_workspace_that_cannot_be_one_is_refused_by_name() {
    let mut world = World::new();
    world.text("/home/ann/project/file", "");
    world.directory("/usr/src/app");
    world.directory("/home/ann/.aws");
    world.link("/home/ann/project/home", "/home/ann");
    let cases = [
        ("file", "is not a directory"),
        ("missing", "cannot be used"),
        ("/", "is the root"),
        ("/home/ann", "is a home directory"),
        ("home", "is a home directory"),
        ("..", "is a home directory"),
        ("/home", "belongs to the host's system"),
        ("/home/ann/.aws", "may hold credentials"),
        ("/etc", "belongs to the host's system (/etc)"),
        ("/usr/lib", "belongs to the host's system (/usr)"),
        ("/usr/src", "belongs to the host's system (/usr)"),
        ("/opt", "belongs to the host's system (/opt)"),
        ("/tmp", "is a temporary directory"),
    ];
    for (workspace, problem) in cases {
        world.workspaces = vec![workspace.into()];
        let error = world.plan("bash").unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("workspace `{workspace}` {problem}")), "{message}");
        assert!(message.contains("; give ") && error.exit_code() == 125, "{message}");
    }
    world.workspaces = vec!["/usr/src/app".into()];
    assert_eq!(is_writable(&world.plan("bash").unwrap(), "/usr/src/app"), Some(true));
}

#[test]
fn links_on_the_way_exist_inside() {
    let mut world = World::new();
    world.directory("/data/ws");
    world.link("/data/current", "ws");
    world.link("/home/ann/link", "/data/current");
    world.link("/home/ann/here", "project");
    world.workspaces = vec!["/home/ann/link".into()];
    world.cwd = "/home/ann/here".into();
    let plan = world.plan("bash").unwrap();
    assert_eq!(plan.cwd, Path::new("/home/ann/project"));
    for (typed, canonical) in [("/home/ann/link", "/data/ws"), ("/home/ann/here", "/home/ann/project")] {
        let reached = inside(&plan, world.root.path(), Path::new(typed));
        assert_eq!(reached, Some(world.on_disk(canonical)));
    }
}

#[test]
fn a_home_reached_through_a_link_is_still_a_home() {
    let mut world = World::new();
    world.text("/etc/passwd", "eve:x:1:1::/homes/eve:\n");
    world.directory("/data/homes/eve/.ssh");
    world.link("/homes", "/data/homes");
    for cwd in ["/homes/eve", "/data/homes/eve", "/data/homes", "/data", "/data/homes/eve/.ssh"] {
        world.cwd = cwd.into();
        assert_eq!(world.plan("bash").unwrap().cwd, Path::new("/workspace"), "{cwd}");
    }
}

#[test]
fn the_starting_directory_must_exist_inside() {
    let mut world = World::new();
    world.text("/home/ann/project/src/main", "");
    world.directory("/srv/other");
    for (start_in, cwd) in
        [("src", "/home/ann/project/src"), ("/tmp", "/tmp"), ("/usr/bin/../lib", "/usr/lib")]
    {
        world.start_in = Some(start_in.into());
        assert_eq!(world.plan("bash").unwrap().cwd, Path::new(cwd));
    }
    for (start_in, problem) in [
        ("/srv/other", "does not exist inside"),
        ("gone", "cannot be used"),
        ("src/main", "is not a directory"),
    ] {
        world.start_in = Some(start_in.into());
        let message = world.plan("bash").unwrap_err().to_string();
        assert!(message.starts_with(&format!("starting directory `{start_in}` {problem}")), "{message}");
    }
    // From a home it takes the place of the empty workspace.
    world.cwd = HOME_OF_ANN.into();
    world.workspaces = vec!["project".into()];
    world.start_in = Some("project/src".into());
    let plan = world.plan("bash").unwrap();
    assert_eq!((plan.cwd.to_str(), &plan.notes[..]), (Some("/home/ann/project/src"), &[][..]));
}

#[test]
fn a_workspace_of_the_engine_s_own_appears_as_workspace() {
    let mut world = World::new();
    world.program("/home/ann/.local/state/sandtimer/w1/sub/tool", b"#!/bin/sh\n");
    world.workspace_of_its_own = Some("/home/ann/.local/state/sandtimer/w1".into());
    for command in ["sub/tool", "/workspace/sub/tool"] {
        let plan = world.plan(command).unwrap();
        assert_eq!((executable(&plan), plan.cwd.to_str()), ("/workspace/sub/tool", Some("/workspace")));
        assert_eq!(is_writable(&plan, "/workspace"), Some(true));
        assert_eq!(
            shown_below(&plan, HOME_OF_ANN),
            [""; 0],
            "not at its own path, nor the current directory"
        );
    }
    world.start_in = Some("/workspace/sub".into());
    assert_eq!(executable(&world.plan("./tool").unwrap()), "/workspace/sub/tool");
    world.link("/home/ann/.local/state/sandtimer/w1/out", "/home/ann/project");
    world.start_in = Some("/workspace/out".into());
    assert!(world.plan("bash").is_err(), "a link out of the workspace");
}

#[test]
fn callers_workspace_is_at_its_own_path_and_linked() {
    let mut world = World::new();
    world.program("/home/ann/project/sub/tool", b"#!/bin/sh\n");
    // A virtual environment of an interpreter that is not on PATH.
    let python = "/home/ann/.local/share/uv/python/cpython-3.12.1-linux-x86_64-gnu";
    world.program(&format!("{python}/bin/python3.12"), &elf(&[], "", None));
    world.text(&format!("{python}/lib/python3.12/os.py"), "");
    world.link("/home/ann/project/.venv/bin/python", &format!("{python}/bin/python3.12"));
    world.text("/home/ann/project/.venv/pyvenv.cfg", &format!("home = {python}/bin\nversion = 3.12.1\n"));
    world.workspace_of_its_own = Some("/home/ann/project".into());
    world.is_callers = true;
    for command in ["sub/tool", "/workspace/sub/tool", "/home/ann/project/sub/tool"] {
        let plan = world.plan(command).unwrap();
        let shown = (executable(&plan), plan.cwd.to_str());
        assert_eq!(shown, ("/home/ann/project/sub/tool", Some("/home/ann/project")), "{command}");
        assert_eq!(is_writable(&plan, "/home/ann/project"), Some(true));
        let link = plan.mounts.iter().find(|mount| mount.target() == Path::new("/workspace"));
        let points_to = PathBuf::from("/home/ann/project");
        assert_eq!(link, Some(&Mount::Symlink { target: "/workspace".into(), points_to }));
    }
    let plan = world.plan("bash").unwrap();
    assert_eq!(is_writable(&plan, &format!("{python}/bin")), Some(false), "{plan:#?}");
    for start in ["/workspace/sub", "/home/ann/project/sub"] {
        world.start_in = Some(start.into());
        assert_eq!(world.plan("bash").unwrap().cwd, Path::new("/home/ann/project/sub"), "{start}");
    }
    world.start_in = None;
    world.directory("/workspace/project");
    world.workspace_of_its_own = Some("/workspace/project".into());
    let plan = world.plan("bash").unwrap();
    assert_eq!(
        (plan.cwd.to_str(), is_writable(&plan, "/workspace/project")),
        (Some("/workspace/project"), Some(true))
    );
}

#[test]
fn shared_temporary_directory_keeps_what_lies_below_it() {
    let mut world = World::new();
    world.directory("/state/t1/build/project");
    world.directory("/tmp/build/project");
    world.temporary = Some("/state/t1".into());
    world.workspaces = vec!["/tmp/build/project".into()];
    let plan = world.plan("bash").unwrap();
    let Some(Mount::Bind { source, writable: true, identity_mapped: true, .. }) = bind(&plan, "/tmp") else {
        panic!("{plan:#?}")
    };
    assert_eq!(source, Path::new("/state/t1"));
    assert_eq!(is_writable(&plan, "/tmp/build/project"), Some(true), "{plan:#?}");
    assert!(
        plan.mounts.iter().all(|mount| mount.target() != Path::new("/tmp/build")),
        "it is made on the host"
    );
}

#[test]
fn extra_entries_follow_the_same_rule() {
    let mut world = World::new();
    world.text("/home/ann/libs/module.py", "");
    world.text("/home/ann/app.zip", "");
    world.cwd = "/tmp/x".into();
    world.directory("/tmp/x");
    world.extra = ["/home/ann/libs", "/home/ann/app.zip", "/home/ann", "/nowhere", "/usr/lib"]
        .map(PathBuf::from)
        .into();
    let plan = world.plan("bash").unwrap();
    assert_eq!(shown_below(&plan, HOME_OF_ANN), ["app.zip", "libs"]);
    let [Note { kind: NoteKind::Extra, text }] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert_eq!(text, "/home/ann is not shown because it is a home directory");
}

#[test]
fn private_files_of_world_readable_directories_are_covered() {
    let mut world = World::new();
    for (name, mode) in [("module.py", 0o644), (".env", 0o600), ("group.txt", 0o640), ("sub/key", 0o400)] {
        world.text(&format!("/srv/tasks/{name}"), "");
        let path = world.on_disk(&format!("/srv/tasks/{name}"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    world.text("/srv/tasks/private/readable", "");
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(world.on_disk("/srv/tasks/private"), private).unwrap();
    world.link("/srv/tasks/link", ".env");
    world.world_readable = ["/srv/tasks", "/home/ann", "/nowhere"].map(PathBuf::from).into();
    let plan = world.plan("bash").unwrap();
    assert!(matches!(
        bind(&plan, "/srv/tasks"),
        Some(Mount::Bind { writable: false, identity_mapped: false, .. })
    ));
    let covered: Vec<&Path> = plan
        .mounts
        .iter()
        .filter(|mount| match mount {
            Mount::Bind { source, .. } => source == Path::new("/dev/null"),
            Mount::Tmpfs { .. } => true,
            _ => false,
        })
        .filter_map(|mount| mount.target().strip_prefix("/srv/tasks").ok())
        .collect();
    assert_eq!(covered, [".env", "private", "sub/key"].map(Path::new));
    let [Note { kind: NoteKind::Extra, text }] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert_eq!(text, "/home/ann is not shown because it is a home directory");
    // The control: shown as an entry of `sys.path`, nothing of it is covered.
    (world.extra, world.world_readable) = (vec!["/srv/tasks".into()], Vec::new());
    assert_eq!(shown_below(&world.plan("bash").unwrap(), "/srv/tasks"), [""]);
}

#[test]
fn names_need_not_be_utf8() {
    let mut world = World::new();
    let odd = OsStr::from_bytes(b"odd\xff");
    let directory = world.on_disk("/home/ann").join(odd);
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join(odd), elf(&[], "", None)).unwrap();
    fs::set_permissions(directory.join(odd), fs::Permissions::from_mode(0o755)).unwrap();
    world.cwd = Path::new(HOME_OF_ANN).join(odd);
    let mut command = OsString::from("./");
    command.push(odd);
    let plan = world.plan_command(&command).unwrap();
    assert_eq!(plan.cwd, world.cwd);
    assert_eq!(plan.executable.unwrap().path, world.cwd.join(odd));
}
