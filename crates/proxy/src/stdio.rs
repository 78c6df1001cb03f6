//! A server that speaks on stdio, behind HTTP.
//!
//! ```text
//!   POST /mcp ─▶ streamable ─┐                  ┌─▶ queue ─▶ writer ─▶ stdin
//!                            ├─▶ Bridge ────────┤                              server
//!   GET /sse  ─▶ sse ────────┘   who waits for  └── dispatch ◀─ reader ◀─ stdout
//!                                which id
//! ```
//!
//! One server answers all callers. Each request gets an id of our own on its way in, and its own back on its way out, so callers
//! with the same ids never see each other's answers. What the server says unasked goes to whom it concerns.
//!
//! The proxy initializes the server itself, before any client (`negotiation`), and nothing else reaches it before (`readiness`).
//! Clients of another era than the server's are answered so that they continue in its own (`eras`).
//!
//! An answer that takes its time becomes a stream (`stream`), which a caller that lost it can come back to (`replay`). What the
//! server would have to know of HTTP to judge a call is known here (`catalogue`).

pub(crate) mod abilities;
pub(crate) mod bridge;
mod call;
mod catalogue;
mod concerned;
mod eras;
mod handshake;
mod interests;
mod levels;
mod link;
mod listener;
mod logging;
mod negotiation;
mod questions;
mod readiness;
mod replay;
pub(crate) mod reply;
pub(crate) mod sse;
mod stream;
pub(crate) mod streamable;

pub use bridge::Bridge;
pub use link::{Connect, Keeper, Limits, News};
pub(crate) use link::{Last, ended, pass_log_on};
pub use sse::Sse;
pub use streamable::Streamable;

#[cfg(test)]
mod tests;
