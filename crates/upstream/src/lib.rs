//! Calling MCP servers. [`Upstream`] is the only way in which the data plane reaches one: messages in, messages out, whatever
//! the transport.
//!
//! ```text
//!   downstream ─▶ Upstream ─┬─ stdio::StdioUpstream ─▶ a process, or a pod that the proxy is attached to
//!                           ├─ http::HttpUpstream ───▶ streamable HTTP, HTTP+SSE
//!                           ├─ bridge::BridgedUpstream ─▶ one of these, for clients of the other era
//!                           └─ memory::MemoryUpstream ─▶ a test
//! ```
//!
//! An upstream owns the handshake with the server, request ids on the server's side, cancellation, and which session a
//! server-initiated message belongs to. It knows nothing of HTTP status codes, of clients' connections or of middleware.

pub mod admission;
mod bridge;
mod era;
mod error;
mod handshake;
pub mod http;
pub mod initialize;
mod kept_client;
mod listener;
pub mod memory;
mod relayed_call;
mod replies;
mod session_keeper;
pub mod stdio;
mod tool_catalogue;
mod upstream;

pub use bridge::BridgedUpstream;
pub use error::CallError;
pub use handshake::{discover_request, eras_of};
pub use kept_client::KeptClient;
pub use listener::{Listener, QueueError};
pub use relayed_call::RelayedCall;
pub use replies::{InFlight, PendingResponse, Replies, Response};
pub use session_keeper::{KEPT, SessionKeeper};
pub use stdio::log_level::is_level as is_log_level;
pub use tool_catalogue::list_tools_request;
pub use upstream::{
    BackendNames, BoxFuture, Call, ClientContext, ItemOwner, Server, SessionId, Upstream, UpstreamState, abbreviate,
};
