//! The endpoints that clients speak to. They serve any [`skep_upstream::Upstream`]: HTTP status codes, JSON or events by `Accept`,
//! sessions, keep-alives and resumption are theirs, and what is behind is the upstream's.
//!
//! ```text
//!   POST, GET, DELETE /mcp ─▶ streamable ─┬─▶ Upstream
//!   GET /sse, POST /messages ─▶ sse ──────┘
//!   any path ─▶ forward ─┬────────────────▶ HttpUpstream::forward
//!                        └─▶ streamable ──▶ era bridge, for the era that the server does not serve
//! ```
//!
//! A response that takes its time becomes a stream of events (`stream`), which a client that lost it can resume (`resume`).

mod endpoint;
pub(crate) mod forward;
mod listener;
mod own_request;
pub(crate) mod reply;
pub(crate) mod request;
mod resume;
pub(crate) mod sse;
mod stream;
pub(crate) mod streamable;

pub use endpoint::Endpoint;
pub use forward::{EraBridge, Forward, ForwardOptions};
pub use sse::Sse;
pub use streamable::Streamable;

#[cfg(test)]
mod tests;
