//! Observers see requests and change nothing. Metrics are one.
//!
//! ```text
//!   request ──▶ middleware ──▶ begin ──▶ middleware ──▶ forwarded ──▶ server
//!   client  ◀── drop ◀── ended ◀── part ◀── answered ◀──────────────────┘
//! ```
//!
//! An observer has its place in the chain, as every middleware. It sees the requests that come that far, also if a later middleware
//! denies them, and none that an earlier one denied. A denial by the head comes before every observer that begins with the message.
//!
//! What it wants of the headers it takes when the request begins: they go to the server. The response it sees as it is sent, from
//! the server, a middleware, or the proxy itself. It is not parsed for that.

use std::fmt::Debug;
use std::sync::Arc;

use http::Response;
use skep_net::{Body, BodyWatch};

use crate::exchange::{Exchange, Head};

/// Sees requests.
pub trait Observer: Debug + Send + Sync {
    /// A request came as far as this.
    fn begin(self: Arc<Self>, head: &mut Head) -> Box<dyn Observation>;
}

/// Sees one request. It is dropped when its response has ended, or when the client left before there was one.
pub trait Observation: Debug + Send + Sync {
    /// The request goes to the server, as middleware left it. Headers that are added here go with it.
    fn forwarded(&mut self, _exchange: &mut Exchange) {}

    /// The response begins. The request is as it went to the server, with all that became known about it on the way;
    /// its body may be released by now, see [`Exchange::mcp_method`] and [`Exchange::resource`].
    fn answered(&mut self, exchange: &Exchange, response: &Response<Body>);

    /// Whether it sees the response on its way to the client. Then [`Self::part`] and [`Self::ended`] are called.
    fn sees_response(&self) -> bool {
        false
    }

    /// A part of the response goes to the client.
    fn part(&mut self, _bytes: &[u8]) {}

    /// The reply went to the client on another stream than the response, as this event.
    fn late_reply(&mut self, _event: &[u8]) {}

    /// The response has ended. Without this, it was cut off.
    fn ended(&mut self) {}
}

/// The observations of a request while its response is sent.
#[derive(Debug)]
pub(crate) struct Observations(pub(crate) Vec<Box<dyn Observation>>);

// === impl Observations ===

impl Observations {
    /// The reply went to the client on another stream than the response, which ends them.
    pub(crate) fn late_reply(&mut self, event: &[u8]) {
        for one in &mut self.0 {
            one.late_reply(event);
            one.ended();
        }
    }
}

impl BodyWatch for Observations {
    fn part(&mut self, bytes: &[u8]) {
        self.0.iter_mut().for_each(|one| one.part(bytes));
    }

    fn end(&mut self) {
        self.0.iter_mut().for_each(|one| one.ended());
    }
}
