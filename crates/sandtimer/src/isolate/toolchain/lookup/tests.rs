//! The walk along links, compared with the kernel's over a directory full of them.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A directory, a file in it, and links: to them, upwards, to themselves, to each other, to
/// nothing.
fn maze() -> tempfile::TempDir {
    let maze = tempfile::tempdir().unwrap();
    let at = |name: &str| maze.path().join(name);
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("directory/file"), "text").unwrap();
    symlink("directory", at("link")).unwrap();
    symlink(at("link"), at("absolute")).unwrap();
    symlink("../link/file", at("directory/to-file")).unwrap();
    symlink("..", at("directory/up")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("pong", at("ping")).unwrap();
    symlink("./ping/.", at("pong")).unwrap();
    symlink("nothing/at/all", at("dangling")).unwrap();
    maze
}

fn kernel(path: &Path) -> Result<PathBuf, Errno> {
    path.canonicalize().map_err(errno)
}

fn ours(host: &HostFiles, path: &Path) -> Result<PathBuf, Errno> {
    host.resolve(path).map(|found| found.path.clone())
}

#[test]
fn follows_links_as_the_kernel_does_whatever_was_asked_before() {
    let maze = maze();
    let names = "directory file link absolute to-file up loop ping dangling absent ..".split(' ');
    let mut paths = vec![maze.path().to_path_buf()];
    for _ in 0..3 {
        let longer: Vec<PathBuf> =
            paths.iter().flat_map(|path| names.clone().map(|name| path.join(name))).collect();
        paths.extend(longer);
    }
    let (forwards, backwards) = (HostFiles::new(Path::new("/")), HostFiles::new(Path::new("/")));
    let reversed: Vec<_> = paths.iter().rev().map(|path| ours(&backwards, path)).collect();
    for (path, reversed) in paths.iter().zip(reversed.into_iter().rev()) {
        let expected = kernel(path);
        assert_eq!(ours(&forwards, path), expected, "{path:?}");
        assert_eq!(reversed, expected, "{path:?}, asked in reverse order");
    }
}

#[test]
fn follows_forty_links_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let at = |index: usize| directory.path().join(format!("link{index}"));
    fs::write(at(0), "").unwrap();
    for index in 1..=42 {
        symlink(at(index - 1), at(index)).unwrap();
    }
    let host = HostFiles::new(Path::new("/"));
    for index in (38..=42).rev() {
        assert_eq!(ours(&host, &at(index)), kernel(&at(index)), "{index} links");
    }
    assert_eq!(host.resolve(&at(40)).unwrap().links.len(), 40);
    assert_eq!(host.resolve(&at(41)).unwrap_err(), Errno::LOOP);
}

#[test]
fn a_long_path_needs_no_deep_stack() {
    let long: PathBuf = std::iter::once("/").chain(std::iter::repeat_n("absent", 2000)).collect();
    let thread = std::thread::Builder::new().stack_size(64 << 10);
    let answer = thread.spawn(move || ours(&HostFiles::new(Path::new("/")), &long)).unwrap().join().unwrap();
    assert_eq!(answer, Err(Errno::NOENT));
}

#[test]
fn distinguishes_final_link_from_intermediate_links() {
    let maze = maze();
    let host = HostFiles::new(maze.path());
    fs::write(maze.path().join("plain"), "").unwrap();
    symlink("/link", maze.path().join("rooted")).unwrap();
    let link = |path: &str| host.link(Path::new(path));
    assert_eq!(link("/rooted"), Some("/link".into()));
    assert_eq!(link("/rooted/file"), None);
    assert_eq!(link("/rooted/to-file"), Some("../link/file".into()));
    assert_eq!([link("/plain"), link("/dangling"), link("/absent"), link("/")], [None, None, None, None]);
}

#[test]
fn inspects_each_path_once() {
    let maze = maze();
    let host = HostFiles::new(maze.path());
    assert!(host.is_file(Path::new("/link/to-file")) && !host.is_file(Path::new("/directory/later")));
    fs::remove_dir_all(maze.path().join("directory")).unwrap();
    fs::write(maze.path().join("directory"), "").unwrap();
    assert!(host.is_file(Path::new("/directory/file")) && !host.is_file(Path::new("/directory/later")));
}
