//! The proxy that carries the outgoing connections of a sandbox under an allow-list.
//!
//! A sandbox's network namespace has no route to anywhere. A listening socket inside it is passed
//! out to the process that runs this proxy, which serves HTTP (`CONNECT` and absolute-form
//! requests) and SOCKS5 on it. For each connection the proxy:
//!
//! 1. parses the host and the port of the request, and normalises the name once ([`target`](Host));
//! 2. searches the allow-list ([`ProxyPolicy`]) for an entry, before it resolves anything;
//! 3. resolves the name ([`Resolver`]), and checks every address;
//! 4. connects to an address that was checked, and copies bytes in both directions within
//!    [`ProxyBounds`].
//!
//! In addition, a [`NameServer`] answers that no name exists, since all names are resolved here.
//! What they refuse and what the proxy carries is reported to an [`EventSink`]. The crate does not
//! know the engine.
#![forbid(unsafe_code)]

mod bounds;
mod buffered;
mod capacity;
mod client_hello;
mod connection;
mod context;
mod denial;
mod dial;
mod event;
mod http;
mod listener;
mod names;
mod policy;
mod proxy;
mod resolve;
mod socks;
mod target;
mod traffic;
mod tunnel;

pub use bounds::ProxyBounds;
pub use capacity::Capacity;
pub use denial::{Denial, DenialReason};
pub use event::{ConnectionEnd, Event, EventSink, Protocol};
pub use listener::ProxyListener;
pub use names::NameServer;
pub use policy::{EntryError, ProxyPolicy};
pub use proxy::{Proxy, ProxyConfig, Usage};
pub use resolve::{Resolver, ResolverFuture, SystemResolver};
pub use target::{Host, HostError, Target};
