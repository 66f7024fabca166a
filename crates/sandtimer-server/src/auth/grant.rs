//! What a token allows what it starts, as its line has it.

use sandtimer::Limits;
use sandtimer::limits::{Format, Key, Setting, parse_string};
use sandtimer_proxy::ProxyPolicy;

/// What a line of the token file grants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grant {
    pub maxima: Limits,
    pub network: bool,
    /// What sandboxes may reach by their network allow-lists, without the option `network`.
    pub hosts: Option<ProxyPolicy>,
    pub operator: bool,
}

/// The prefix of the name of a limit, as on the wire: `max_wall_ms=10m`.
const LIMIT_PREFIX: &str = "max_";
/// The prefix of the hosts that sandboxes may reach: `network=pypi.org,*.example.com:443`.
const HOSTS: &str = "network=";

impl Grant {
    /// Takes an option of a line. Returns false if it is not one of these, and an error if its
    /// value is invalid.
    pub fn take(&mut self, option: &str) -> Result<bool, &'static str> {
        let flag = match option {
            "network" => Some(&mut self.network),
            "operator" => Some(&mut self.operator),
            _ => None,
        };
        if let Some(flag) = flag {
            return if std::mem::replace(flag, true) {
                Err("network or operator is there twice")
            } else {
                Ok(true)
            };
        }
        if let Some(entries) = option.strip_prefix(HOSTS) {
            let hosts = ProxyPolicy::parse(entries.split(','));
            let hosts = hosts
                .map_err(|_| "network= has hosts such as pypi.org,*.example.com:443,10.1.0.0/16:5432")?;
            return match self.hosts.replace(hosts) {
                Some(_) => Err("network= is given twice"),
                None => Ok(true),
            };
        }
        let Some((name, value)) = option.strip_prefix(LIMIT_PREFIX).and_then(|rest| rest.split_once('='))
        else {
            return Ok(false);
        };
        let key = Key::from_wire(name)
            .ok_or("there is no such ceiling; one is max_wall_ms=10m or max_memory_bytes=1G")?;
        let setting = parse_string(name, Format::wire(key), value, "the token file");
        let setting = setting
            .map_err(|_| "a ceiling is a positive limit, such as max_wall_ms=10m or max_memory_bytes=1G")?;
        match (self.maxima.get(key), setting) {
            (Setting::Inherit, Setting::At(_)) => self.maxima.set(key, setting),
            (Setting::Inherit, _) => return Err("a ceiling is positive: leave it out where there is none"),
            _ => return Err("a ceiling is there twice"),
        }
        Ok(true)
    }
}
