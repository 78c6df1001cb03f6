//! A small MCP server to try things with: five tools, a resource and a prompt, in every version of the protocol.
//!
//! This crate owns what the server says. A line comes in and a line goes out; it never reads or writes a stream, and the
//! two things that a line cannot hold, the time and chance, are handed to it ([`Surroundings`]).
//!
//! ```text
//!   line ─▶ server (which era, which method) ─┬─▶ tool: time, calculate, text_statistics, uuid, json_query
//!                                             └─▶ library: a resource, a prompt
//! ```
//!
//! Nothing is remembered between two lines, so a client may call a tool without a handshake, in either era.

mod library;
mod server;
mod tool;

pub use server::{Server, Surroundings};
