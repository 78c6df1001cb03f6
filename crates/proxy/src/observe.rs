//! Whoever sees calls and changes nothing, such as what counts them.
//!
//! ```text
//!   call   ──▶ layers ──▶ begin ──▶ layers ──▶ server
//!   caller ◀── drop ◀── answered ◀──────────────┘
//! ```
//!
//! An observer has its place in the chain, as every layer. It sees the calls that come that far, also if a later layer refuses
//! them; of what an earlier one refused it never hears. What it wants of the headers it takes when the call begins: they go to the
//! server. If it wants to see the messages of the answer too, it asks for them by [`Exchange::watch`], and they are read then.

use std::fmt::Debug;
use std::sync::Arc;

use http::Response;
use skep_net::Body;

use crate::exchange::Exchange;

/// Sees calls.
pub trait Observer: Debug + Send + Sync {
    /// A call came as far as this.
    fn begin(self: Arc<Self>, exchange: &mut Exchange) -> Box<dyn Observation>;
}

/// Sees one call. It is dropped when nothing more is to come of the answer, or when the caller left before there was one.
pub trait Observation: Debug + Send + Sync {
    /// The answer begins. The call is as it went to the server, with all that became known about it on the way;
    /// its body may be released by now, see [`Exchange::mcp_method`] and [`Exchange::resource`].
    fn answered(&mut self, exchange: &Exchange, answer: &Response<Body>);
}
