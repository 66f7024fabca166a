//! Names to addresses.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

/// Lookups at once of one [`SystemResolver`]. Each has a thread, which the C library may keep for a
/// minute.
const MAX_LOOKUPS: usize = 16;

pub type ResolverFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves the names of allowed hosts. The proxy calls it once for each connection.
pub trait Resolver: Send + Sync {
    /// Returns the addresses of `name`, in the sequence in which they are tried.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolverFuture<'a>;
}

/// The resolver of the machine: `getaddrinfo`, with its configuration.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolverFuture<'a> {
        let name = name.to_owned();
        Box::pin(async move {
            let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = (name.as_str(), 0)
                    .to_socket_addrs()
                    .map(|found| found.map(|address| address.ip()).collect());
                // Held until the thread has finished, even if the caller no longer waits.
                drop(permit);
                addresses
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn system_resolves_localhost() {
        let addresses = SystemResolver::default().resolve("localhost").await.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
}
