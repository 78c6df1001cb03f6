//! Spans: what they say about a request, and how they are linked to those of clients and servers.

mod arguments;
mod attributes;
mod client;
mod propagation;
mod span;

pub use self::arguments::redacted;
pub use self::attributes::{McpFacts, RateLimitFacts, ResponseFacts, SpanFacts};
pub use self::client::ChildSpan;
pub use self::propagation::Carrier;
pub use self::span::RequestSpan;
