//! Webhooks: services that see each message of a client before the MCP server does, and may change it or deny it.
//!
//! ```text
//!   message, caller ─▶ payload ─▶ signature ─▶ Service::call ─▶ response ─▶ outcome ─┬─▶ next webhook
//!                                                                 patch ◀───┘        └─▶ refusal
//! ```
//!
//! All that decides is pure: [`config`] checks what a RunConfig says, [`payload`] writes the request body, [`signature`] signs it,
//! [`response`] reads the answer, [`patch`] applies it, [`outcome`] is the table of what follows. Only [`service`] touches files and the
//! network. It calls a webhook once: it follows no redirect and retries nothing, and its timeout covers the whole exchange.
//!
//! A webhook is trusted to decide about a message, and no further: it is bounded in time and size, it cannot change the id or the method of a
//! message, and what it says is logged but never sent to the client.

pub mod config;
mod files;
pub mod outcome;
pub mod patch;
pub mod payload;
pub mod response;
pub mod service;
pub mod signature;

pub use config::{ConfigError, FailurePolicy, WebhookConfig};
pub use files::MemoryFiles;
pub use outcome::{Cause, Kind, Refusal};
pub use service::{CallError, Service};

/// The version of the protocol between a proxy and a webhook.
pub const VERSION: &str = "v0.1.0";
/// The longest message that webhooks are called with, and the longest response of a webhook, in bytes.
pub const MOST_BYTES: usize = 1024 * 1024;

/// The most memory that one value of JSON takes in a tree, in bytes: an object of one member has room for four, and the name and the digits
/// of a number are allocations of their own.
const VALUE_BYTES: usize = 320;
const _: () = assert!(
    4 * size_of::<(String, skep_runconfig::Json)>() + 2 * size_of::<skep_runconfig::Json>() + 32 <= VALUE_BYTES,
    "a value takes more memory than is reserved for it"
);
