//! Where proxies that share sessions keep what an upstream has to know of one.

use std::fmt::Debug;

use crate::upstream::{BoxFuture, SessionId};

/// Its key in the metadata of a stored session.
pub const KEPT: &str = "upstream_state";

/// Keeps what an upstream has to know of a session, so that another proxy can go on with it. It is handed back by
/// [`Upstream::restore_kept`](crate::Upstream::restore_kept).
pub trait SessionKeeper: Debug + Send + Sync {
    /// Keeps this of a session, in place of what was kept before. Where that fails, the session goes on without.
    fn keep<'a>(&'a self, session: &'a SessionId, kept: String) -> BoxFuture<'a, ()>;
}
