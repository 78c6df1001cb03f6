//! The Model Context Protocol as bytes: parsing, inspecting, editing and framing messages.
//!
//! This crate owns the JSON-RPC envelope, ids, the method table, the protocol eras, the rules for HTTP headers, and the
//! framings of both transports (SSE and JSON lines). Bytes come in and bytes go out. It never does I/O, reads the
//! clock, logs, or decides what a client may do.
//!
//! ```text
//!   HTTP body ────────────────────────────┐                  ┌─▶ method: what it is about   era, headers: how it is spoken
//!   SSE ──── sse::Reader ────▶ event data ┼─▶ Message::parse ┤
//!   stdio ── lines::Reader ──▶ line ──────┘                  └─▶ splice, list: the same bytes but for what changes
//!                                                                     bridge: the same message in the other era
//!                                                                                │
//!   HTTP body, sse::event, lines::frame ◀──────── body ◀──── answer: Skep's own ◀┘
//! ```
//!
//! A message is parsed once. The result is kept as positions in its body ([`message::Head`]), so it borrows nothing and
//! travels with the bytes. An edit replaces one member and leaves every other byte unchanged: numbers keep their
//! digits, strings their escapes, objects their order and their unknown members.
//!
//! Parsing is strict where two parsers could see two messages. A duplicate name is rejected in a message, its `params`,
//! their `_meta`, `ref` and `arguments`, on the path to an argument that a header repeats, and in lists that are
//! filtered; so is a known name in another case. Deeper inside (the name of a client, the model that a server
//! requests), the last one counts.

pub mod answer;
pub mod bridge;
pub mod era;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod headers;
pub mod id;
mod json;
pub mod lines;
pub mod list;
pub mod message;
pub mod message_error;
pub mod method;
mod names;
mod patch;
pub mod raw;
pub mod splice;
pub mod sse;
pub mod value;

pub use era::{Era, Eras, RequestError};
pub use id::Id;
pub use message::{Kind, Message};
pub use message_error::MessageError;
pub use method::Method;
pub use raw::Raw;
pub use splice::Edit;
