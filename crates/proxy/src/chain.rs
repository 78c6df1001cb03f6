//! The middleware chain: what every request goes through, in three phases.
//!
//! ```text
//!   request ──▶ head ──▶ read body ──▶ message ──▶ server
//!   client  ◀─────────────── reply ◀──────────────────┘
//! ```
//!
//! | phase | sees | file |
//! | --- | --- | --- |
//! | head | method, path, headers, peer | `chain/head.rs` |
//! | message | one parsed message, the caller, the session | `chain/message.rs` |
//! | reply | each message of the response | `chain/reply.rs` |
//!
//! In each phase, middleware runs in the order in which the RunConfig lists it, outermost first, until one answers the request itself.

mod build;
mod head;
mod message;
mod notes;
pub mod reply;
mod tools;

use std::fmt::Debug;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Response};
use skep_auth::metadata::ProtectedResource;
use skep_mcp::Message;
use skep_net::Body;
use skep_runconfig::feature::Feature;
use skep_runconfig::middleware::Place;
use skep_telemetry::audit::{AuditLog, AuditSink};
use tokio::sync::Semaphore;

pub use self::build::Context;
pub use self::head::BODY_LIMIT;
pub(crate) use self::notes::{AnswerReason, AskedAs, MutatedBy, RateLimitDecision};
pub(crate) use self::tools::ToolSource;
use crate::exchange::{Exchange, Head};

/// The middleware of a proxy.
#[derive(Debug)]
pub struct Chain {
    middleware: Vec<Placed>,
    trusts_proxies: bool,
    /// The server behind it, once it is known.
    source: OnceLock<Arc<dyn ToolSource>>,
    /// One permit for each list of tools that is requested for middleware.
    listings: Semaphore,
}

/// A middleware, the type that a RunConfig names, and its place.
pub(crate) struct Placed {
    kind: Arc<str>,
    place: Place,
    middleware: Arc<dyn Middleware>,
}

/// The middleware that answered a request instead of the server. It travels with the response, and no client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnsweredBy(pub(crate) Arc<str>);

/// Why a middleware denied a request or let it through, for the audit log. A denial's travels with the response, which no client sees; that
/// of a request that was let through is among the notes of its exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AuditNotes {
    /// Why, without claims and arguments.
    pub(crate) reason: String,
    /// The policies that decided.
    pub(crate) policies: Vec<String>,
}

/// One middleware. It takes part in the phases whose methods it implements; replies it asks for by [`Head::watch_replies`].
pub trait Middleware: Debug + Send + Sync {
    /// Sees all of a request but its body.
    fn head<'a>(&'a self, _head: &'a mut Head) -> Step<'a> {
        Step::NEXT
    }

    /// Sees a message.
    fn message<'a>(&'a self, _exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        Step::NEXT
    }

    /// Whether it decides what may be sent, and so runs again on a message that another middleware replaced.
    fn enforces(&self) -> bool {
        false
    }

    /// Whether it must see what is in a message, so that every body is parsed, whatever its media type.
    fn needs_message(&self) -> bool {
        false
    }

    /// Whether it must know the tools of the server before it sees a message. Then they are listed first, if that is possible.
    fn needs_tools(&self, _exchange: &Exchange) -> bool {
        false
    }

    /// Whether it must know which of several servers things belong to. To find that out may mean to wait for a server.
    fn needs_backends(&self, _exchange: &Exchange) -> bool {
        false
    }

    /// Learns all pages of the list of tools, which was requested for a message.
    fn learn_tools(&self, _exchange: &Exchange, _pages: &[Message]) {}

    /// Whether it sees no more than the head.
    fn is_head_only(&self) -> bool {
        false
    }

    /// Whether it signs the bytes of a request, so that none but these can be sent.
    fn signs_requests(&self) -> bool {
        false
    }

    /// The longest body that it lets through.
    fn body_limit(&self) -> Option<usize> {
        None
    }

    /// The resource that it protects, about which clients without a token can read a document.
    fn protected_resource(&self) -> Option<&ProtectedResource> {
        None
    }

    /// The log that it writes, which is flushed when the proxy ends.
    fn audit_log(&self) -> Option<&AuditLog> {
        None
    }

    /// The same log, for events that no request is.
    fn audit_sink(&self) -> Option<AuditSink> {
        None
    }

    /// Whether pages of an origin may send requests, if it restricts that.
    fn allows_origin(&self, _origin: &HeaderValue) -> Option<bool> {
        None
    }
}

/// What a middleware makes of a request.
#[derive(Debug)]
pub enum Flow {
    /// It goes on.
    Next,
    /// It is answered here.
    Answer(Response<Body>),
}

/// What a middleware makes of a request, at once or after it has waited for something. Most never wait, and need no allocation.
pub enum Step<'a> {
    /// It is known.
    Ready(Flow),
    /// It will be known.
    Pending(Pin<Box<dyn Future<Output = Flow> + Send + 'a>>),
}

/// Which message a middleware sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The client's, as the middleware before left it.
    Incoming,
    /// The one that will be sent, after a middleware replaced it.
    Outgoing,
}

/// Why a chain cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// No such type exists.
    #[error("unsupported middleware type: {0}")]
    UnknownMiddleware(String),
    /// This build does not have the type.
    #[error("middleware `{kind}` is not in this version of skep: {feature} is not supported; remove {}", .feature.field())]
    UnsupportedMiddleware {
        /// The type.
        kind: String,
        /// What it implements.
        feature: Feature,
    },
    /// A member of the RunConfig asks for it, and its list of middleware does not have it.
    #[error(
        "middleware_configs has no `{kind}` with what other members of the RunConfig ask for; add it to the list, or leave the list empty"
    )]
    UnlistedMiddleware {
        /// The type.
        kind: String,
    },
    /// Its parameters are invalid.
    #[error("middleware `{kind}`: {problem}")]
    InvalidParameters {
        /// The type.
        kind: String,
        /// What is wrong with them.
        problem: String,
    },
}

// === impl Placed ===

impl Placed {
    fn new(kind: &str, place: Place, middleware: Arc<dyn Middleware>) -> Self {
        Self { kind: kind.into(), place, middleware }
    }

    /// Its response to a request, with its name.
    fn answer(&self, mut response: Response<Body>) -> Flow {
        response.extensions_mut().insert(AnsweredBy(self.kind.clone()));
        Flow::Answer(response)
    }
}

impl Deref for Placed {
    type Target = dyn Middleware;

    fn deref(&self) -> &Self::Target {
        &*self.middleware
    }
}

impl Debug for Placed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.middleware.fmt(formatter)
    }
}

// === impl Step ===

impl Step<'_> {
    /// The request goes on.
    pub const NEXT: Self = Self::Ready(Flow::Next);
}

impl From<Response<Body>> for Step<'_> {
    fn from(response: Response<Body>) -> Self {
        Self::Ready(Flow::Answer(response))
    }
}

impl Debug for Step<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ready(flow) => formatter.debug_tuple("Ready").field(flow).finish(),
            Self::Pending(_) => formatter.write_str("Pending"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
