//! State that outlives a request, in memory or in Redis.
//!
//! This crate owns
//! - [`Session`]: what is known of one MCP session, and the JSON that it is in Redis;
//! - [`Sessions`]: where sessions are, [`Memory`] or [`Redis`], behind one set of operations;
//! - [`redis`]: the connection to a Redis server, which everything that is kept there shares.
//!
//! ```text
//!   proxy ──▶ Sessions ──┬─▶ Memory ────────────▶ Ledger: who owns how many, and which one is evicted
//!                        └─▶ Redis ──▶ Server     (with Redis, of what this replica sees)
//! ```
//!
//! Both keep the same promises, and one suite of tests says which. A store that does not answer is an error and never an
//! empty answer: whoever asks must be able to tell "no such session" from "I do not know". It decides nothing about who
//! may use a session, and never shows a password.

pub mod buckets;
mod error;
pub mod redis;
pub mod session;
mod sessions;

pub use buckets::{Bucket, Buckets, MemoryBuckets, RedisBuckets, Taken};
pub use error::StoreError;
pub use session::Session;
pub use sessions::{
    Created, Ended, Memory, Owner, Prefix, PrefixError, Redis, SESSION_BYTES, SessionLimits, Sessions,
    UNUSED_TIME_TO_LIVE,
};
