//! Names to addresses.

use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::capacity::Capacity;

/// Lookups at once of one [`SystemResolver`].
const MAX_LOOKUPS: usize = 16;
/// Where names are that need no lookup.
const HOSTS: &str = "/etc/hosts";

pub type ResolverFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Resolves the names of allowed hosts. The proxy calls it once for each connection.
pub trait Resolver: Send + Sync {
    /// Returns the addresses of `name`, in the sequence in which they are tried.
    fn resolve<'a>(&'a self, name: &'a str) -> ResolverFuture<'a>;
}

/// The resolver of the machine: `getaddrinfo`, with its configuration but its search domains, which
/// would make other names of those that are allowed. A name without a dot is looked up as it is.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
    /// Those of all proxies.
    all: Arc<Semaphore>,
}

impl SystemResolver {
    /// The resolver of one proxy, whose lookups are some of `capacity`.
    pub fn new(capacity: &Capacity) -> SystemResolver {
        SystemResolver { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)), all: Arc::clone(&capacity.lookups) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolverFuture<'a> {
        let name = name.to_owned();
        Box::pin(async move {
            let own = Arc::clone(&self.lookups).acquire_owned().await.map_err(io::Error::other)?;
            let permits = (own, Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?);
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = addresses_of(&name);
                // Held until the thread has finished, even if the caller no longer waits.
                drop(permits);
                addresses
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

fn addresses_of(name: &str) -> io::Result<Vec<IpAddr>> {
    let by_system = |name: &str| -> io::Result<Vec<IpAddr>> {
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    };
    if !name.contains('.') {
        return by_system(name);
    }
    // The C library does not find a name there that has a dot at its end.
    let known = listed(&std::fs::read_to_string(HOSTS).unwrap_or_default(), name);
    if known.is_empty() { by_system(&format!("{name}.")) } else { Ok(known) }
}

/// The addresses of a name in a file of hosts; hosts(5).
fn listed(hosts: &str, name: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let mut fields = line.split_whitespace();
        let address = fields.next()?.parse().ok()?;
        fields.any(|listed| listed.trim_end_matches('.').eq_ignore_ascii_case(name)).then_some(address)
    };
    hosts.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn system_resolves_localhost() {
        let addresses = SystemResolver::new(&Capacity::default()).resolve("localhost").await.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }

    #[test]
    fn hosts_file_has_names_with_dots() {
        let hosts = "# 10.0.0.1 a.example\n127.0.0.1 localhost\n10.0.0.2\tb.example A.example # c.example\nfd00::1 a.example.\n";
        let of = |name: &str| listed(hosts, name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(of("a.example"), ["10.0.0.2", "fd00::1"]);
        assert_eq!((of("c.example"), of("example")), (Vec::new(), Vec::new()));
    }
}
