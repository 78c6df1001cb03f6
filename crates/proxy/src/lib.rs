//! The proxy: one HTTP port in front of one MCP server, whatever that server speaks.
//!
//! ```text
//!   RunConfig ─▶ settings ─▶ run ─┬─▶ workload: the server behind
//!                                 └─▶ proxy ─▶ chain ─▶ stdio::streamable | stdio::sse | transparent ─▶ server
//! ```
//!
//! A message is read once into an [`exchange::Exchange`], which runs through the [`chain`] of middleware and then to whoever
//! answers. Bytes travel as they came unless a layer must change them, and then only the changed member is replaced.

pub mod capacity;
pub mod chain;
mod cors;
pub mod exchange;
pub mod health;
pub mod hosts;
mod http;
mod layer;
pub mod metrics;
pub mod observe;
pub mod proxy;
pub mod run;
mod secrets;
pub mod sessions;
pub mod settings;
pub mod stdio;
pub mod transparent;
pub mod unsupported;

pub use proxy::{Front, Guards, Proxy};
pub use settings::Settings;
