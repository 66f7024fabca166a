//! What a token allows each of its runs and contexts: ceilings below the server's, and whether they
//! may have a network; and whether it is an operator's, which may inspect the whole server.
//!
//! Each token with ceilings has a scope, in which all that it starts is opened: so an extension
//! cannot pass them either.

use std::collections::HashMap;

use sandtimer::engine::ScopeHandle;
use sandtimer::limits::{Key, Setting};
use sandtimer::scope::ScopeId;
use sandtimer::{Engine, Limits};
use sandtimer_proxy::ProxyPolicy;

use crate::auth::{Grant, OwnerId, Tokens};
use crate::error::{ApiRejection, Code};

/// The scopes of tokens, and which of them may have a network.
#[derive(Debug)]
pub(crate) struct Tenants {
    /// Identify owners; without them there is one owner, the server's own user.
    pub tokens: Option<Tokens>,
    scopes: HashMap<OwnerId, ScopeHandle>,
    /// The ceilings of those with any.
    maxima: HashMap<OwnerId, Limits>,
    /// All that have a token.
    known: Vec<OwnerId>,
    /// `None`: without tokens, since that user could use the network without a run.
    networked: Option<Vec<OwnerId>>,
    /// The network allow-lists of owners that may not use the whole network.
    hosts: HashMap<OwnerId, ProxyPolicy>,
    /// `None`: without tokens, where only the server's own user is answered.
    operators: Option<Vec<OwnerId>>,
}

impl Tenants {
    pub fn open(engine: &Engine, tokens: Option<&Tokens>) -> Result<Self, sandtimer::Error> {
        let grants: Vec<_> = tokens.into_iter().flat_map(Tokens::grants).collect();
        let (mut scopes, mut maxima) = (HashMap::new(), HashMap::new());
        for (owner, grant) in &grants {
            if Key::ALL.iter().any(|key| grant.maxima.get(*key) != Setting::Inherit) {
                let name = owner.as_str().replace([':', '/'], "-");
                scopes.insert(owner.clone(), engine.open_tenant(name, &grant.maxima)?);
                maxima.insert(owner.clone(), grant.maxima.clone());
            }
        }
        let with = |has: fn(&Grant) -> bool| {
            tokens.map(|_| {
                let owners = grants.iter().filter(|(_, grant)| has(grant));
                owners.map(|(owner, _)| owner.clone()).collect()
            })
        };
        let (networked, operators) = (with(|grant| grant.network), with(|grant| grant.operator));
        let hosts =
            grants.iter().filter_map(|(owner, grant)| Some((owner.clone(), grant.hosts.clone()?))).collect();
        let known = grants.iter().map(|(owner, _)| owner.clone()).collect();
        let tokens = tokens.cloned();
        Ok(Tenants { tokens, scopes, maxima, known, networked, hosts, operators })
    }

    /// What its token allows an owner's runs of one kind; `None` if the token has none.
    pub fn ceiling(&self, owner: &OwnerId, key: Key) -> Option<u64> {
        match self.maxima.get(owner)?.get(key) {
            Setting::At(ceiling) => Some(ceiling),
            _ => None,
        }
    }

    /// What all of an owner's is opened in.
    pub fn scope(&self, owner: &OwnerId) -> Option<ScopeId> {
        self.scopes.get(owner).map(ScopeHandle::id)
    }

    /// Whether it is an owner with a token.
    pub fn knows(&self, owner: &OwnerId) -> bool {
        self.known.contains(owner)
    }

    /// Whether this owner may give what it starts (`what`: runs, contexts) the host's network.
    ///
    /// # Errors
    /// Its token does not allow it.
    pub fn check_network(&self, owner: &OwnerId, what: &str) -> Result<(), ApiRejection> {
        if self.may_have_network(owner) {
            return Ok(());
        }
        let message = format!("network: this token may not give {what} the host's network");
        Err(ApiRejection::new(Code::NetworkRefused, message).with("key", "network"))
    }

    /// Whether the runs of this owner may have the host's network.
    pub fn may_have_network(&self, owner: &OwnerId) -> bool {
        self.networked.as_ref().is_none_or(|networked| networked.contains(owner))
    }

    /// What the sandboxes of this owner may reach at most; `None` is everything.
    pub fn hosts(&self, owner: &OwnerId) -> Option<ProxyPolicy> {
        if self.may_have_network(owner) {
            return None;
        }
        Some(self.hosts.get(owner).cloned().unwrap_or_default())
    }

    /// Whether it may inspect the whole server: its host, its settings, and the counts of all
    /// owners.
    pub fn is_operator(&self, owner: &OwnerId) -> bool {
        self.operators.as_ref().is_none_or(|operators| operators.contains(owner))
    }
}
