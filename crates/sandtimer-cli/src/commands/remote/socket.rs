//! HTTP over the socket of this user's server for MCP clients. Whatever the address, that server is
//! reached.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

use super::super::mcp;

#[derive(Debug)]
pub(super) struct Agents;

impl Connector for Agents {
    type Out = SocketTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<SocketTransport>, Error> {
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(SocketTransport { stream: mcp::connect()?, buffers }))
    }
}

#[derive(Debug)]
pub(super) struct SocketTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for SocketTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|left| *left))?;
        let written = self.stream.write_all(&self.buffers.output()[..amount]);
        written.map_err(|error| late(error, timeout.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|left| *left))?;
        let count = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| late(error, timeout.reason))?,
            }
        };
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        // Each request has a connection of its own.
        false
    }
}

fn late(error: io::Error, reason: Timeout) -> Error {
    if error.kind() == io::ErrorKind::WouldBlock { Error::Timeout(reason) } else { error.into() }
}
