//! Behind a virtual server, the backend of what a decision is about. What no backend has is denied, by calls and lists alike.

use std::sync::Arc;

use skep_authz::Decision;
use skep_authz::query::Treatment;
use skep_mcp::list::List;
use skep_upstream::ItemOwner;

use super::{Authorizer, Decider};
use crate::exchange::Exchange;

/// Whether a message names things of backends, or may have an answer that does. The handshake does not: it waits for no server. A stream that
/// is opened may have lists.
pub(super) fn are_named_in(exchange: &Exchange) -> bool {
    let names_many = |method: &str| matches!(Treatment::of(method), Treatment::DecideEach(_));
    let may_name = |method: &str| List::of(method).is_some() || names_many(method);
    exchange.named_in().is_some() || exchange.mcp_method().is_none_or(may_name)
}

/// The backend of a thing, in a decision about it.
pub(super) fn backend_of(owner: Option<ItemOwner>) -> Result<Option<Arc<str>>, Decision> {
    match owner {
        None | Some(ItemOwner::Composed) => Ok(None),
        Some(ItemOwner::Backend(name)) => Ok(Some(name)),
        Some(ItemOwner::Unknown) => Err(Decision::failed("no backend has what the message names")),
    }
}

// === impl Authorizer ===

impl Authorizer {
    /// Which of several servers a message is for, if a decision may depend on it. A thing that none of them has is denied: it could belong to
    /// one by the time that the message is sent.
    pub(super) fn backend(&self, exchange: &Exchange) -> Result<Option<Arc<str>>, Decision> {
        backend_of(exchange.owner().filter(|_| self.needs_backends()))
    }

    pub(super) fn needs_backends(&self) -> bool {
        matches!(&self.engine, Decider::Cedar(cedar) if cedar.needs_backend())
    }
}
