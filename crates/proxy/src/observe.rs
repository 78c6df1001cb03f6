//! Observers see requests and change nothing. Metrics are one.
//!
//! ```text
//!   request ──▶ middleware ──▶ begin ──▶ middleware ──▶ server
//!   client  ◀── drop ◀── answered ◀──────────────────────┘
//! ```
//!
//! An observer has its place in the chain, as every middleware. It sees the requests that come that far, also if a later middleware
//! denies them, and none that an earlier one denied. A denial by the head comes before every observer that begins with the message.
//!
//! What it wants of the headers it takes when the request begins: they go to the server. If it wants to see the replies too, it asks
//! for them by [`Head::watch_replies`].

use std::fmt::Debug;
use std::sync::Arc;

use http::Response;
use skep_net::Body;

use crate::exchange::{Exchange, Head};

/// Sees requests.
pub trait Observer: Debug + Send + Sync {
    /// A request came as far as this.
    fn begin(self: Arc<Self>, head: &mut Head) -> Box<dyn Observation>;
}

/// Sees one request. It is dropped when its response has ended, or when the client left before there was one.
pub trait Observation: Debug + Send + Sync {
    /// The response begins. The request is as it went to the server, with all that became known about it on the way;
    /// its body may be released by now, see [`Exchange::mcp_method`] and [`Exchange::resource`].
    fn answered(&mut self, exchange: &Exchange, response: &Response<Body>);
}
