//! Sandtimer over HTTP. A handler parses, calls one function, and renders; what happens to a run is
//! the engine's.
//!
//! ```text
//! server       the server from its start to its end
//! state        all services, for the server itself
//! service_core what every service is built on
//! listen       connections, their bounds, and the layers in front of all handlers: whose request it is
//! connection   whose its other end is, and waiting only while that is there
//! auth         owners, and the tokens by which they are known
//! body         fields of requests, each refusal naming its field; limits by the engine's own parser
//! scan         bounds of the JSON that is received, before it is parsed
//! intake       memory for what is received and answered, and the threads that parse long messages
//! registry     things by id that are there for their owner only
//! runs         /v1/runs: request → Spec, the driver of each run, output, events, records
//! contexts     /v1/contexts and /v1/sessions: live interpreters and shells, what is executed in them, when they end
//! jobs         /v1/jobs: durable work, in a store and by a worker of this server
//! tasks        /v1/tasks: estimates, what durations are known, and tasks that are compared with them
//! settings     how a server is set up
//! policy       what holds where a request says nothing
//! quota        how much an owner may have at once
//! tenants      what a token allows each run: ceilings, the network
//! compat       /api/*: the same runs and contexts in another interface's form, one module
//! api          the interfaces of other systems that execute programs, each a module over `programs`
//! programs     programs in a language: compiled, run, and how that ended
//! mcp          /mcp: the same runs and contexts as tools for agents
//! workspaces   /v1/workspaces: directories that outlive what works in them
//! files        /v1/files: their files, used with the rights of their owner
//! page         /: live runs and contexts, for people
//! events       server-sent events with ids from which a reader continues
//! trace        log lines and spans, for operators
//! error        the one list of errors
//! ```
//! No thread per run or request: a run is a task that waits for the engine's futures. Building a
//! sandbox, the disk, and what is executed or waits for its turn in a context block, on the
//! runtime's pool of threads.
#![forbid(unsafe_code)]

mod api;
mod auth;
mod body;
mod compat;
mod connection;
mod contexts;
pub mod error;
mod events;
mod facts;
mod files;
mod id;
mod intake;
mod jobs;
mod judge;
mod language;
mod listen;
mod mcp;
mod metrics;
mod openapi;
mod page;
mod policy;
mod programs;
mod quota;
mod registry;
mod runs;
mod sandboxes;
mod scan;
mod server;
mod service_core;
mod settings;
mod state;
mod tasks;
mod tenants;
mod trace;
mod webhook_sender;
mod workspaces;

pub use auth::{OwnerId, TokenError, Tokens};
pub use mcp::document as mcp_tools;
pub use openapi::document as openapi;
pub use policy::{DEFAULT_READY, Defaults, Interpreters, PoolSettings};
pub use server::ServerHandle;
pub use settings::{HostProgram, JobSettings, Listen, Retention, Settings, StartError, ToolNames};
pub use trace::{Collector, CollectorError};
pub use webhook_sender::HttpWebhookSender;
