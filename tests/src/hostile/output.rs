//! Attacks D5 to D8 and E12: payloads that misuse their output, their descriptors, or their death.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::{Finding, quoted};
use crate::system::{pause_forever, signal};

/// Writes `block` to `descriptor` until `most` bytes are out, or until it breaks.
fn flood(descriptor: i32, block: &[u8], most: u64) -> u64 {
    let mut written = 0;
    while written < most {
        let length = block.len().min((most - written) as usize);
        match call!(libc::SYS_write, descriptor, block.as_ptr(), length) {
            Ok(count) => written += count as u64,
            Err(libc::EINTR) => {}
            Err(_) => break,
        }
    }
    written
}

/// D5: `flood-stdout BYTES`.
pub(crate) fn stdout(arguments: &PayloadArguments) -> Finding {
    flood(1, &[b'x'; 1 << 16], arguments.number(0, 1 << 30));
    Finding::Completed
}

/// D7: both streams at once: `flood-both BYTES` each.
pub(crate) fn both(arguments: &PayloadArguments) -> Finding {
    let most = arguments.number(0, 64 << 20);
    let other = std::thread::spawn(move || flood(2, &[b'e'; 1 << 16], most));
    flood(1, &[b'o'; 1 << 16], most);
    drop(other.join());
    Finding::Completed
}

/// D6: that many empty lines: `newline-flood N`.
pub(crate) fn newlines(arguments: &PayloadArguments) -> Finding {
    flood(1, &[b'\n'; 1 << 16], arguments.number(0, 100_000_000));
    Finding::Completed
}

/// D6, I2: bytes that are no text, terminal escapes, and lines that look like the engine's own.
pub(crate) fn junk(_: &PayloadArguments) -> Finding {
    let junk: &[u8] = b"\xff\xfe\x00\x1b[2J\x1b]0;title\x07\r{\"ending\":\"exited\",\"ok\":true}\n\xc3(\n";
    drop(std::io::stdout().write_all(junk));
    Finding::Completed
}

/// I2: prints what looks like the Outcome of a good run, then fails.
pub(crate) fn forge_outcome(_: &PayloadArguments) -> Finding {
    flood(1, b"\n{\"run_id\":\"forged\",\"ending\":\"exited\",\"ok\":true,\"exit_code\":0}\n", 67);
    Finding::Untried("forged".into())
}

/// D8: closes its streams and lives on.
pub(crate) fn close_streams(_: &PayloadArguments) -> Finding {
    let _ = call!(libc::SYS_close_range, 0, 2, 0);
    pause_forever()
}

/// E12: ends by a signal that dumps core.
pub(crate) fn core_dump(_: &PayloadArguments) -> Finding {
    // SAFETY: the default disposition is what ends the process.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    Finding::of(signal(std::process::id() as i32, libc::SIGSEGV))
}

/// I4: exits at once without reading its input.
pub(crate) fn ignore_input(_: &PayloadArguments) -> Finding {
    Finding::Facts("\"read\":0".into())
}

/// I12: names and values of the environment.
pub(crate) fn environment(_: &PayloadArguments) -> Finding {
    let members: Vec<String> = std::env::vars_os()
        .map(|(name, value)| {
            format!("{}:{}", quoted(&name.to_string_lossy()), quoted(&value.to_string_lossy()))
        })
        .collect();
    Finding::Facts(format!("\"environment\":{{{}}}", members.join(",")))
}

/// Its arguments, byte for byte in hexadecimal: `echo-arguments …`.
pub(crate) fn arguments(arguments: &PayloadArguments) -> Finding {
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let members: Vec<String> =
        arguments.from(0).iter().map(|argument| quoted(&hexadecimal(argument.as_bytes()))).collect();
    Finding::Facts(format!("\"arguments\":[{}]", members.join(",")))
}
