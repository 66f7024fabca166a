//! Where the command and its children come from.

use super::*;

#[test]
fn pyenv_shim_resolves_to_its_version() {
    let mut world = World::new();
    world.pyenv(&["3.11.7", "3.12.1"]);
    world.path = "/home/ann/.pyenv/shims:/home/ann/.pyenv/bin:/usr/bin".into();
    world.directory("/home/ann/.pyenv/bin");
    let plan = world.plan("python3").unwrap();
    assert_eq!(executable(&plan), "/home/ann/.pyenv/versions/3.11.7/bin/python3");
    assert_eq!(plan.path_variable, "/home/ann/.pyenv/versions/3.11.7/bin:/usr/bin");
    assert_eq!(
        shown_below(&plan, "/home/ann/.pyenv"),
        ["bin", "lib", "share"].map(|part| format!("versions/3.11.7/{part}"))
    );
    assert_eq!(plan.notes, []);
    // The command is another one, and a child wants python3.
    let plan = world.plan("bash").unwrap();
    assert!(
        inside(&plan, world.root.path(), Path::new("/home/ann/.pyenv/versions/3.11.7/bin/python3")).is_some()
    );
}

#[test]
fn pyenv_chooses_by_variable_then_nearest_file_then_default() {
    let mut world = World::new();
    world.pyenv(&["3.11.7", "3.9.2", "3.9.18", "3.12.1"]);
    world.path = "/home/ann/.pyenv/shims:/usr/bin".into();
    world.text("/home/ann/.python-version", "# a comment\npython-3.12.1\n");
    let version = |world: &World| executable(&world.plan("python3").unwrap()).to_owned();
    assert_eq!(version(&world), "/home/ann/.pyenv/versions/3.12.1/bin/python3");
    world.text("/home/ann/project/.python-version", "3.9\n");
    assert_eq!(version(&world), "/home/ann/.pyenv/versions/3.9.18/bin/python3", "the newest 3.9");
    world.variable("PYENV_VERSION", "3.11.7:3.12.1");
    assert_eq!(version(&world), "/home/ann/.pyenv/versions/3.11.7/bin/python3");
    world.variables.clear();
    world.variable("PYENV_VERSION", "system");
    assert_eq!(world.plan("python3").unwrap_err().exit_code(), 127);
    world.program("/usr/bin/python3", &elf(&[], "", None));
    assert_eq!(version(&world), "/usr/bin/python3");
}

#[test]
fn a_version_file_cannot_reach_outside_the_versions() {
    let mut world = World::new();
    world.pyenv(&["3.11.7"]);
    world.python("/home/ann/.secrets", "3.11");
    world.path = "/home/ann/.pyenv/shims:/usr/bin".into();
    for hostile in ["../../.secrets", "/home/ann/.secrets", "..", ".", "3.11.7/../../../.secrets"] {
        world.text("/home/ann/project/.python-version", hostile);
        let plan = world.plan("bash").unwrap();
        assert_eq!(shown_below(&plan, "/home/ann/.secrets"), [""; 0], "{hostile}");
        assert!(
            plan.notes.iter().any(|note| note.text.contains("is not installed")),
            "{hostile}: {:?}",
            plan.notes
        );
    }
}

#[test]
fn a_shim_by_its_path_is_replaced_too() {
    let mut world = World::new();
    world.pyenv(&["3.11.7"]);
    world.link("/home/ann/project/python", "/home/ann/.pyenv/shims/python3");
    world.program("/home/ann/project/script", b"#!/home/ann/.pyenv/shims/python3\n");
    let real = "/home/ann/.pyenv/versions/3.11.7/bin/python3";
    assert_eq!(executable(&world.plan("/home/ann/.pyenv/shims/python3").unwrap()), real);
    assert_eq!(executable(&world.plan("./python").unwrap()), real);
    let plan = world.plan("./script").unwrap();
    let link = Mount::Symlink { target: "/home/ann/.pyenv/shims/python3".into(), points_to: real.into() };
    assert!(plan.mounts.contains(&link), "{plan:#?}");
    world.variable("PYENV_VERSION", "3.8.1");
    let error = world.plan("/home/ann/.pyenv/shims/python3").unwrap_err();
    assert_eq!(error.exit_code(), 127);
    assert!(error.to_string().contains("pyenv 3.8.1 (chosen by PYENV_VERSION), not installed"), "{error}");
}

#[test]
fn a_venv_brings_the_installation_it_stands_on() {
    let mut world = World::new();
    world.pyenv(&["3.11.7"]);
    for venv in ["/home/ann/project/.venv", "/home/ann/envs/data"] {
        world.link(&format!("{venv}/bin/python"), "/home/ann/.pyenv/versions/3.11.7/bin/python3");
        world.text(&format!("{venv}/lib/python3.11/site-packages/x.py"), "");
        world.link(&format!("{venv}/lib64"), "lib");
        world.text(&format!("{venv}/pyvenv.cfg"), "home = /home/ann/.pyenv/versions/3.11.7/bin\n");
        world.text(&format!("{venv}/.env"), "secret");
        world.path = format!("{venv}/bin:/usr/bin");
        for command in ["python", "bash", &format!("{venv}/bin/python")] {
            let plan = world.plan(command).unwrap();
            assert!(bind(&plan, "/home/ann/.pyenv/versions/3.11.7/lib").is_some(), "{command}: {plan:#?}");
            assert_eq!(plan.path_variable, world.path.as_str());
            if command != "bash" {
                assert_eq!(executable(&plan), format!("{venv}/bin/python"));
            }
        }
    }
    // Outside the current directory only its parts are shown.
    let plan = world.plan("python").unwrap();
    assert_eq!(shown_below(&plan, "/home/ann/envs/data"), ["bin", "lib", "lib64", "pyvenv.cfg"]);
}

#[test]
fn rustup_gives_its_toolchain_and_never_cargo_s_home() {
    let mut world = World::new();
    world.rustup(&["stable", "nightly"]);
    world.path = "/home/ann/.cargo/bin:/usr/bin".into();
    let plan = world.plan("cargo").unwrap();
    assert_eq!(executable(&plan), "/home/ann/.rustup/toolchains/stable/bin/cargo");
    assert_eq!(plan.path_variable, "/home/ann/.rustup/toolchains/stable/bin:/home/ann/.cargo/bin:/usr/bin");
    assert_eq!(shown_below(&plan, "/home/ann/.cargo"), ["bin"]);
    assert_eq!(
        plan.environment,
        [("RUSTUP_HOME", "/home/ann/.rustup".into()), ("RUSTUP_TOOLCHAIN", "stable".into())]
    );
    let settings = shown_below(&plan, "/home/ann/.rustup");
    assert_eq!(settings, ["settings.toml", "toolchains/stable/bin", "toolchains/stable/lib"]);
    // By its path the proxy is replaced as well.
    world.path = "/usr/bin".into();
    let plan = world.plan("/home/ann/.cargo/bin/cargo").unwrap();
    assert_eq!(executable(&plan), "/home/ann/.rustup/toolchains/stable/bin/cargo");
}

#[test]
fn rustup_chooses_by_variable_override_file_and_default() {
    let mut world = World::new();
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    world.rustup(&["stable", "nightly", &format!("1.80.0-{triple}")]);
    world.link("/home/ann/.rustup/toolchains/pinned", &format!("1.80.0-{triple}"));
    world.path = "/home/ann/.cargo/bin:/usr/bin".into();
    let chosen = |world: &World| {
        let plan = world.plan("cargo").unwrap();
        Path::new(executable(&plan))
            .ancestors()
            .nth(2)
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    world.text("/srv/nightly/sub/file", "");
    world.cwd = "/srv/nightly/sub".into();
    assert_eq!(chosen(&world), "nightly", "rustup's override for a parent");
    world.cwd = "/home/ann/project".into();
    world.text("/home/ann/project/rust-toolchain.toml", "[toolchain]\nchannel = \"1.80.0\" # pinned\n");
    assert_eq!(chosen(&world), format!("1.80.0-{triple}"));
    world.text("/home/ann/project/rust-toolchain", "nightly\n");
    assert_eq!(chosen(&world), "nightly", "the old form wins, as in rustup");
    world.variable("RUSTUP_TOOLCHAIN", "pinned");
    assert_eq!(chosen(&world), "pinned");
    let plan = world.plan("cargo").unwrap();
    let link = Path::new("/home/ann/.rustup/toolchains/pinned");
    assert!(plan.mounts.iter().any(|mount| matches!(mount, Mount::Symlink { target, .. } if target == link)));
    for hostile in ["../../.ssh", "1.99.0"] {
        world.variables.clear();
        world.variable("RUSTUP_TOOLCHAIN", hostile);
        let plan = world.plan("bash").unwrap();
        assert!(plan.notes.iter().any(|note| note.text.starts_with("Rust toolchain")), "{:?}", plan.notes);
    }
}

#[test]
fn nvm_uv_and_conda_show_their_program_parts_only() {
    let mut world = World::new();
    let node = "/home/ann/.nvm/versions/node/v20.1.0";
    world.program(&format!("{node}/bin/node"), &elf(&[], "", None));
    world.text(&format!("{node}/lib/node_modules/npm/bin/npm-cli.js"), "#!/usr/bin/env node\n");
    let conda = "/home/ann/miniconda3";
    world.python(conda, "3.10");
    world.text(&format!("{conda}/conda-meta/history"), "");
    world.text(&format!("{conda}/pkgs/cache"), "");
    let uv = "/home/ann/.local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu";
    world.python(uv, "3.13");
    world.link("/home/ann/.local/bin/python3.13", &format!("{uv}/bin/python3.13"));
    world.path = format!("{node}/bin:{conda}/bin:/home/ann/.local/bin:/usr/bin");

    let plan = world.plan("node").unwrap();
    assert_eq!(executable(&plan), format!("{node}/bin/node"));
    assert_eq!(shown_below(&plan, "/home/ann/.nvm/versions/node/v20.1.0"), ["bin", "lib"]);
    assert_eq!(shown_below(&plan, conda), ["bin", "lib", "share"]);
    assert_eq!(plan.path_variable, format!("{node}/bin:{conda}/bin:/usr/bin").as_str());
    assert!(
        matches!(&plan.notes[..], [Note { kind: NoteKind::PathEntry, text }] if text.contains("/home/ann/.local/bin"))
    );

    let plan = world.plan("python3.13").unwrap();
    assert_eq!(executable(&plan), "/home/ann/.local/bin/python3.13");
    assert_eq!(shown_below(&plan, "/home/ann/.local/bin"), ["python3.13"], "the link alone");
    assert_eq!(shown_below(&plan, uv), ["bin", "lib", "share"]);
    assert_eq!(plan.path_variable, world.path.as_str(), "its PATH entry holds something now");
}

#[test]
fn unknown_layout_shows_file_interpreter_and_libraries() {
    let world = World::new();
    let interpreter = "/home/ann/apps/tool/ld.so";
    world.program(interpreter, &elf(&[], "", None));
    world.program(
        "/home/ann/apps/tool/bin/tool",
        &elf(&["liba.so.1", "libc.so.6"], "/nowhere:$ORIGIN/../lib", Some(interpreter)),
    );
    world.program("/home/ann/apps/tool/lib/liba.so.1.2", &elf(&["libb.so"], "", None));
    world.link("/home/ann/apps/tool/lib/liba.so.1", "liba.so.1.2");
    world.program("/home/ann/apps/tool/lib/libb.so", &elf(&[], "", None));
    world.text("/home/ann/apps/tool/lib/token", "secret");
    let plan = world.plan("/home/ann/apps/tool/bin/tool").unwrap();
    assert_eq!(
        shown_below(&plan, "/home/ann/apps"),
        ["tool/bin/tool", "tool/ld.so", "tool/lib/liba.so.1", "tool/lib/liba.so.1.2", "tool/lib/libb.so"]
    );
    world.program("/home/ann/bin/script", b"#! /usr/bin/env -S FOO=1 /home/ann/apps/tool/bin/tool --fast\n");
    let plan = world.plan("../bin/script").unwrap();
    assert_eq!(executable(&plan), "/home/ann/bin/script");
    assert_eq!(shown_below(&plan, "/home/ann/bin"), ["script"]);
    assert!(bind(&plan, "/home/ann/apps/tool/bin/tool").is_some());
}

#[test]
fn files_of_an_earlier_run_cannot_have_secrets_shown() {
    let mut world = World::new();
    world.text("/home/ann/keys/token", "secret");
    world.text("/home/ann/keys/lib/token", "secret");
    world.program("/home/ann/.ssh/hook", b"#!/bin/sh\n");
    world.workspaces = vec!["/home/ann/project".into()];
    let none_shown = |command: &str| match world.plan(command) {
        Ok(plan) => {
            assert_eq!(shown_below(&plan, "/home/ann/keys"), [""; 0], "{command}");
            assert_eq!(shown_below(&plan, "/home/ann/.ssh"), [""; 0], "{command}");
        }
        Err(error) => assert!([126, 127].contains(&error.exit_code()), "{command}: {error}"),
    };
    world.program("/home/ann/project/a", b"#!/home/ann/keys/token\n");
    world.program("/home/ann/project/b", b"#!/home/ann/.ssh/hook\n");
    world.link("/home/ann/project/c", "/home/ann/keys/token");
    world.program(
        "/home/ann/project/d",
        &elf(&["token", "../token"], "/home/ann/keys", Some("/home/ann/keys/token")),
    );
    world.program("/home/ann/project/e", b"#!/home/ann/project/e\n");
    world.program("/home/ann/project/venv/bin/f", &elf(&[], "", None));
    world.text("/home/ann/project/venv/pyvenv.cfg", "home = /home/ann/keys/bin\n");
    world.directory("/home/ann/keys/bin");
    for command in ["./a", "./b", "./c", "./d", "./e", "./venv/bin/f", "/home/ann/.ssh/hook"] {
        none_shown(command);
    }
    // An installation's part that leads out of the installation is not followed.
    world.python("/home/ann/python", "3.11");
    world.link("/home/ann/python/include", "/home/ann/keys");
    none_shown("/home/ann/python/bin/python3");
    assert_eq!(world.plan("./e").unwrap_err().exit_code(), 126, "a script that runs itself");
}

#[test]
fn excess_installations_are_reported() {
    let mut world = World::new();
    let prefixes: Vec<String> = (0..18).map(|index| format!("/home/ann/python/{index}")).collect();
    for prefix in &prefixes {
        world.python(prefix, "3.11");
    }
    world.path = prefixes.iter().map(|prefix| format!("{prefix}/bin:")).collect::<String>() + "/usr/bin";
    let plan = world.plan("bash").unwrap();
    let left_out = plan.notes.iter().filter(|note| note.kind == NoteKind::Installation).count();
    let shown = prefixes.iter().filter(|prefix| bind(&plan, &format!("{prefix}/bin")).is_some()).count();
    assert_eq!((shown, left_out), (16, 2));
}

#[test]
fn a_venv_in_a_home_does_not_make_the_home_an_installation() {
    let world = World::new();
    world.text("/home/ann/pyvenv.cfg", "home = /usr/bin\n");
    world.program("/home/ann/bin/tool", &elf(&[], "", None));
    world.text("/home/ann/share/diary", "secret");
    let plan = world.plan("/home/ann/bin/tool").unwrap();
    assert_eq!(shown_below(&plan, HOME_OF_ANN), ["bin/tool", "project"]);
}

#[test]
fn a_damaged_elf_file_is_read_without_harm() {
    use crate::isolate::toolchain::elf;
    let whole = super::elf(&["liba.so", "libb.so"], "$ORIGIN/../lib", Some("/lib64/ld.so"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged");
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        elf::read(&fs::File::open(&path).unwrap())
    };
    let facts = read(&whole).unwrap();
    assert_eq!((facts.needed.len(), facts.search.len()), (2, 1));
    assert_eq!(facts.interpreter.as_deref(), Some(OsStr::new("/lib64/ld.so")));
    for at in (0..64 + 3 * 56).chain(0x800..0x850) {
        for value in [0x00, 0x7f, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            if let Some(facts) = read(&damaged) {
                assert!(facts.needed.len() <= 4096, "byte {at} as {value}");
            }
        }
        assert!(read(&whole[..at]).is_none(), "cut at {at}");
    }
}
