//! The bytes of a pickle. Nothing is read, and no length believed, beyond their end.

use super::rejection::{Result, refuse};

#[derive(Debug)]
pub(super) struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return refuse("the result's pickle ends too soon");
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((taken, rest)) = self.rest.split_first_chunk() else {
            return refuse("the result's pickle ends too soon");
        };
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads as many bytes as the number of `N` bytes in front of them.
    pub(super) fn counted<const N: usize>(&mut self) -> Result<&'a [u8]> {
        let mut length = [0; 8];
        length[..N].copy_from_slice(&self.array::<N>()?);
        match usize::try_from(u64::from_le_bytes(length)) {
            Ok(length) => self.take(length),
            Err(_) => refuse("the result's pickle names an impossible length"),
        }
    }

    /// The bytes up to the end of the line, without it.
    pub(super) fn line(&mut self) -> Result<&'a [u8]> {
        let Some(length) = self.rest.iter().position(|byte| *byte == b'\n') else {
            return refuse("the result's pickle ends too soon");
        };
        let line = self.take(length)?;
        self.byte()?;
        Ok(line)
    }
}
