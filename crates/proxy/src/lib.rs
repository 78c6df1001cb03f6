//! The proxy: one HTTP port in front of one MCP server, whatever that server speaks.
//!
//! ```text
//!   RunConfig ─▶ settings ─▶ run ─┬─▶ workload: the server behind
//!                                 └─▶ proxy ─▶ chain ─▶ downstream::{streamable, sse, forward} ─▶ upstream ─▶ server
//! ```
//!
//! A message is read once into an [`exchange::Exchange`], which goes through the [`chain`] of middleware and then to the
//! server. Bytes travel as they came unless a middleware must change them, and then only the changed member is replaced.

pub mod caller;
pub mod capacity;
pub mod chain;
mod cors;
pub mod downstream;
pub mod exchange;
pub mod health;
pub mod hosts;
mod http;
mod in_flight;
pub mod instruments;
pub mod metrics;
mod middleware;
pub mod observe;
pub mod proxy;
pub mod router;
pub use middleware::header_forward::is_restricted;
pub use middleware::optimizer::{is_reserved_tool, not_found};

pub mod run;
mod secrets;
pub mod sessions;
pub mod settings;
pub mod tool_search;
mod traced;
pub mod unsupported;

pub use in_flight::InFlight;
pub use proxy::{Front, Guards, Proxy};
pub use settings::Settings;
