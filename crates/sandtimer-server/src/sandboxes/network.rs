//! What sandboxes may reach outside: what a request asks for, what its token allows, and the proxy
//! of each sandbox that is mounted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandtimer::engine::{NetworkDenials, NetworkRequest, NetworkServer, SandboxNetwork, ServedNetwork};
use sandtimer_proxy::{
    Capacity, Event, EventSink, NameServer, Proxy, ProxyBounds, ProxyConfig, ProxyListener, ProxyPolicy,
    SystemResolver,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::network_counts::NetworkCounts;
use crate::auth::OwnerId;
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::tenants::Tenants;

/// Entries of one allow-list.
const MAX_ENTRIES: usize = 200;
const WANTED: &str = "`none`, `host`, or a list of hosts such as [\"pypi.org\", \"*.example.com:443\"]";

/// The field `network` of a request; nothing outside is reached without it.
pub(super) fn parse(fields: &mut RequestFields) -> Result<SandboxNetwork, ApiRejection> {
    parse_value(fields.value("network"))
}

/// The same as a header has it: the entries of a list are separated by commas.
pub(crate) fn parse_header(text: &str) -> Result<SandboxNetwork, ApiRejection> {
    let text = text.trim();
    if matches!(text, "none" | "host") {
        return parse_value(Some(json!(text)));
    }
    let entries: Vec<&str> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    let is_word = |entry: &&&str| ["none", "host"].iter().any(|word| entry.eq_ignore_ascii_case(word));
    if let Some(word) = entries.iter().find(is_word) {
        let lower = word.to_ascii_lowercase();
        let message = format!(
            "network: `{word}` is not a host; write `{lower}` alone and in lower case, or a list of hosts"
        );
        return Err(ApiRejection::new(Code::BadField, message).with("key", "network").with("value", text));
    }
    if entries.len() > MAX_ENTRIES {
        let message = format!(
            "network: {} hosts are more than {MAX_ENTRIES}; list fewer, or use `*.` names",
            entries.len()
        );
        return Err(ApiRejection::new(Code::BadField, message).with("key", "network"));
    }
    parse_value(Some(json!(entries)))
}

fn parse_value(given: Option<Value>) -> Result<SandboxNetwork, ApiRejection> {
    let entries = match given {
        None => return Ok(SandboxNetwork::None),
        Some(Value::String(word)) if word == "none" => return Ok(SandboxNetwork::None),
        Some(Value::String(word)) if word == "host" => return Ok(SandboxNetwork::Host),
        Some(Value::Array(entries)) if entries.len() <= MAX_ENTRIES => entries,
        Some(other) => return Err(refused("network", &other, WANTED)),
    };
    let entries: Vec<String> = entries
        .into_iter()
        .map(|entry| match entry {
            Value::String(entry) => Ok(entry),
            other => Err(refused("network", &other, "a host such as \"pypi.org\"")),
        })
        .collect::<Result<_, _>>()?;
    ProxyPolicy::parse(&entries).map_err(|error| {
        let shown: String = error.entry.chars().take(100).collect();
        let message = format!("network: {}", error.to_string().chars().take(400).collect::<String>());
        ApiRejection::new(Code::BadField, message).with("key", "network").with("value", shown)
    })?;
    Ok(SandboxNetwork::Allowed(entries))
}

/// Checks that an owner may give a sandbox this network.
pub(super) fn check(
    tenants: &Tenants,
    owner: &OwnerId,
    network: &SandboxNetwork,
) -> Result<(), ApiRejection> {
    match network {
        SandboxNetwork::Host => tenants.check_network(owner, "sandboxes"),
        SandboxNetwork::Allowed(entries) => {
            let policy = ProxyPolicy::parse(entries).unwrap_or_default();
            match tenants.hosts(owner).and_then(|hosts| policy.entry_above(&hosts)) {
                None => Ok(()),
                Some(entry) => {
                    let message = format!("network: this token may not let sandboxes reach \"{entry}\"");
                    let refusal = ApiRejection::new(Code::NetworkRefused, message).with("key", "network");
                    Err(refusal.with("value", entry))
                }
            }
        }
        _ => Ok(()),
    }
}

/// As a request has it.
pub(crate) fn view(network: &SandboxNetwork) -> Value {
    match network {
        SandboxNetwork::None => json!("none"),
        SandboxNetwork::Host => json!("host"),
        SandboxNetwork::Allowed(entries) => json!(entries),
    }
}

/// As the header has it.
pub(crate) fn header_text(network: &SandboxNetwork) -> String {
    match network {
        SandboxNetwork::None => "none".to_owned(),
        SandboxNetwork::Host => "host".to_owned(),
        SandboxNetwork::Allowed(entries) => entries.join(", "),
    }
}

/// Serves the networks of sandboxes.
#[derive(Debug)]
pub(super) struct Networks {
    pub runtime: Handle,
    pub tenants: Arc<Tenants>,
    pub counts: Arc<NetworkCounts>,
    pub capacity: Capacity,
}

/// What serves one sandbox.
#[derive(Debug)]
struct OwnerService {
    _proxy: Proxy,
    _names: NameServer,
}

impl NetworkServer for Networks {
    fn serve(&self, request: NetworkRequest<'_>) -> io::Result<ServedNetwork> {
        let policy = ProxyPolicy::parse(request.entries).map_err(io::Error::other)?;
        let policy = match self.tenants.hosts(&OwnerId::recorded(request.owner)) {
            Some(ceiling) => policy.under(ceiling),
            None => policy,
        };
        let events: Arc<dyn EventSink> = Arc::new(recorder(request.denials, self.counts.clone()));
        let config = ProxyConfig {
            policy: policy.clone(),
            bounds: ProxyBounds::default(),
            resolver: Arc::new(SystemResolver::new(&self.capacity)),
            events: events.clone(),
            capacity: self.capacity.clone(),
        };
        let _runtime = self.runtime.enter();
        let sockets = request.sockets;
        let proxy = Proxy::start(sockets.proxy.into_iter().map(ProxyListener::from), config)?;
        let names = NameServer::start(sockets.datagrams, sockets.names, policy, events)?;
        Ok(Box::new(OwnerService { _proxy: proxy, _names: names }))
    }
}

/// Records what is refused for the runs in the sandbox, and counts.
fn recorder(denials: Arc<NetworkDenials>, counts: Arc<NetworkCounts>) -> impl Fn(Event) + Send + Sync {
    let count = |counter: &AtomicU64, by| {
        counter.fetch_add(by, Ordering::Relaxed);
    };
    move |event| match event {
        Event::Allowed { .. } => count(&counts.allowed, 1),
        Event::Denied { denial, .. } => {
            count(&counts.denied, 1);
            denials.record(&denial.target.to_string(), denial.to_string());
        }
        Event::NameAsked { name, is_allowed } => {
            count(&counts.denied, u64::from(!is_allowed));
            denials.record(&format!("name {name}"), asked(&name, is_allowed));
        }
        Event::Closed { sent, received, .. } => {
            count(&counts.sent, sent);
            count(&counts.received, received);
        }
        _ => {}
    }
}

/// What is remarked of a program that looked a name up by itself.
fn asked(name: &str, is_allowed: bool) -> String {
    let remedy = match is_allowed {
        true => "have the program use the proxy that `https_proxy` names".to_owned(),
        false => format!("add \"{name}\" to the network allow-list of the sandbox, which does not have it"),
    };
    format!(
        "The name {name} was looked up in the sandbox, where no name resolves: connections are made by the sandbox's proxy. To reach \
         the host, {remedy}."
    )
}
