//! Attacks D1 to D4 and E7: payloads that fill what they may write to, up to the number given, or
//! change it under the eyes of whoever looks.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::files::c_path;
use crate::report::Finding;
use crate::system::{end_of_life, now};

/// No payload writes more than this, whatever it is asked.
const MAX_BYTES: u64 = 4 << 30;
const MAX_FILES: u64 = 2_000_000;

fn finding(result: Result<Finding, Finding>) -> Finding {
    result.unwrap_or_else(|refused| refused)
}

/// D1, C4, D4: one file of that many bytes: `fill-disk DIR BYTES`. Removed again, for a control
/// fills what is the host's.
pub(crate) fn fill(arguments: &PayloadArguments) -> Finding {
    finding(try_fill(arguments))
}

fn try_fill(arguments: &PayloadArguments) -> Result<Finding, Finding> {
    let most = arguments.number(1, 64 << 20).min(MAX_BYTES);
    let path = arguments.path(0)?.join("hostile-fill");
    let mut file = File::create(&path)?;
    let block = vec![0xA5; 1 << 16];
    let mut written = 0;
    let mut result = Ok(());
    while written < most && result.is_ok() {
        result = file.write_all(&block);
        written += block.len() as u64;
    }
    drop(std::fs::remove_file(&path));
    result?;
    Ok(Finding::Succeeded(format!("{written} bytes")))
}

/// D2: that many empty files in nested directories: `inodes DIR N`.
pub(crate) fn inodes(arguments: &PayloadArguments) -> Finding {
    finding(try_inodes(arguments))
}

fn try_inodes(arguments: &PayloadArguments) -> Result<Finding, Finding> {
    let most = arguments.number(1, 10_000).min(MAX_FILES);
    let top = arguments.path(0)?;
    for number in 0..most {
        let directory = top.join(format!("hostile-{}", number / 1000));
        if number % 1000 == 0 {
            std::fs::create_dir(&directory)?;
        }
        File::create(directory.join(number.to_string()))?;
    }
    Ok(Finding::Succeeded(format!("{most} files")))
}

/// D3: a file that claims that many bytes and holds none: `sparse DIR BYTES`.
pub(crate) fn sparse(arguments: &PayloadArguments) -> Finding {
    finding(try_sparse(arguments))
}

fn try_sparse(arguments: &PayloadArguments) -> Result<Finding, Finding> {
    ignore_file_size_signal();
    let length = arguments.number(1, 1 << 50).min(i64::MAX as u64);
    let path = arguments.path(0)?.join("hostile-sparse");
    let result = File::create(&path)?.set_len(length);
    drop(std::fs::remove_file(&path));
    result?;
    Ok(Finding::Succeeded(format!("a file of {length} bytes")))
}

/// D3: reserves that many bytes: `fallocate DIR BYTES`.
pub(crate) fn reserve(arguments: &PayloadArguments) -> Finding {
    finding(try_reserve(arguments))
}

fn try_reserve(arguments: &PayloadArguments) -> Result<Finding, Finding> {
    ignore_file_size_signal();
    let length = arguments.number(1, 64 << 20).min(MAX_BYTES);
    let path = arguments.path(0)?.join("hostile-reserve");
    let file = File::create(&path)?;
    let result = call!(libc::SYS_fallocate, file.as_raw_fd(), 0, 0, length);
    drop(std::fs::remove_file(&path));
    Ok(Finding::of(result))
}

/// The signal would end the process before it could say which error it got.
fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// E7: a directory and a link to PATH change places as fast as they can, in DIR, for that long:
/// `swap DIR PATH MS`. Whoever looks at DIR meanwhile must not be led to PATH.
pub(crate) fn swap(arguments: &PayloadArguments) -> Finding {
    finding((|| {
        let top = arguments.path(0)?;
        let (directory, link) = (top.join("hostile-a"), top.join("hostile-b"));
        std::fs::create_dir(&directory)?;
        std::os::unix::fs::symlink(arguments.path(1)?, &link)?;
        let (one, other, at) = (c_path(&directory), c_path(&link), libc::AT_FDCWD);
        let end = (now() + Duration::from_millis(arguments.number(2, 1000))).min(end_of_life());
        let mut swaps = 0u64;
        while now() < end {
            let exchange = libc::RENAME_EXCHANGE;
            call!(libc::SYS_renameat2, at, one.as_ptr(), at, other.as_ptr(), exchange)
                .map_err(Finding::Denied)?;
            swaps += 1;
        }
        Ok(Finding::Facts(format!("\"swaps\":{swaps}")))
    })())
}

/// G5: whether a name is there that an earlier run left: `find PATH`.
pub(crate) fn find(arguments: &PayloadArguments) -> Finding {
    match arguments.path(0) {
        Ok(path) if Path::exists(&path) => Finding::Succeeded("found".into()),
        Ok(_) => Finding::Denied(libc::ENOENT),
        Err(refused) => refused,
    }
}
