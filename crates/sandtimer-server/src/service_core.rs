//! What every service of a server is built on.

use std::sync::Arc;

use sandtimer::Engine;
use tokio::sync::watch;

use crate::intake::Messages;
use crate::metrics::Metrics;
use crate::quota::QuotaTable;
use crate::settings::HostProgram;
use crate::tenants::Tenants;
use crate::trace::Traces;

/// The engine, what owners may have of it, and how the server reports and ends.
#[derive(Debug)]
pub(crate) struct ServiceCore {
    pub engine: Engine,
    pub tenants: Arc<Tenants>,
    pub quotas: QuotaTable,
    pub messages: Messages,
    pub metrics: Metrics,
    pub traces: Traces,
    pub host: HostProgram,
    /// True once the server is to stop.
    pub closing: watch::Sender<bool>,
}
