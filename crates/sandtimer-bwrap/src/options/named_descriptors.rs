//! Reads and closes the descriptors that a command line names by number.

use std::io::Read;
use std::os::fd::AsRawFd;

use sandtimer_os::{descriptors, process};

use crate::failure::BwrapFailure;

/// Everything that a descriptor gives.
pub(crate) fn read_all(number: i32) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    std::fs::File::from(process::inherited(number)?).read_to_end(&mut data)?;
    Ok(data)
}

/// A seccomp filter; its descriptor is closed.
pub(crate) fn read_filter(number: i32) -> Result<Vec<u8>, BwrapFailure> {
    let data = read_all(number).map_err(|error| BwrapFailure::because("Can't read seccomp data", error))?;
    descriptors::close_inherited(number);
    match data.len().is_multiple_of(8) {
        true => Ok(data),
        false => Err(BwrapFailure::new("Invalid seccomp data, must be multiple of 8")),
    }
}

/// The numbers of the standard descriptors are not closed.
pub(crate) fn close(number: Option<i32>) {
    if let Some(number) = number.filter(|number| *number > std::io::stderr().as_raw_fd()) {
        descriptors::close_inherited(number);
    }
}
