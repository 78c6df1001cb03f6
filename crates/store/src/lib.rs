//! State that outlives a request, in memory or in Redis.
//!
//! This crate owns
//! - [`Session`]: the state of one MCP session, and its JSON in Redis;
//! - [`Sessions`]: the session store, [`Memory`] or [`Redis`], behind one set of operations;
//! - [`buckets`]: token buckets, in memory or in Redis, behind one operation;
//! - [`redis`]: the connection to a Redis server, which everything stored there shares.
//!
//! ```text
//!   proxy ──▶ Sessions ──┬─▶ Memory ────────────▶ Ledger: how many each owner has, and which one is evicted
//!                        └─▶ Redis ──▶ Server     (with Redis, of what this replica sees)
//! ```
//!
//! Both give the same guarantees, which one contract suite tests. An unavailable store is an error and never an empty
//! result: the proxy must be able to distinguish "no such session" from "unknown". The crate does not authorize the use
//! of a session, and never shows a password.

pub mod buckets;
mod error;
pub mod redis;
pub mod session;
mod sessions;

pub use error::StoreError;
pub use session::Session;
pub use sessions::{
    Created, Ended, Memory, Owner, Prefix, PrefixError, Redis, SESSION_BYTES, SessionLimits, Sessions,
    UNUSED_TIME_TO_LIVE,
};
