//! A small MCP server to try things with: five tools, a resource and a prompt, in every version of the protocol.
//!
//! This crate owns the responses of the server. A line comes in and a line goes out; it never does I/O, and time and
//! randomness are passed in ([`Surroundings`]).
//!
//! ```text
//!   line ─▶ server (which era, which method) ─┬─▶ tool: time, calculate, text_statistics, uuid, json_query
//!                                             └─▶ library: a resource, a prompt
//! ```
//!
//! There is no state between two lines, so a client may call a tool without a handshake, in either era.

mod library;
mod server;
mod tool;

pub use server::{Server, Surroundings};
