//! The Model Context Protocol as bytes: what a message is, what it is about, and how it is changed and framed.
//!
//! This crate owns the JSON-RPC envelope, ids, the table of methods, the eras of the protocol, the rules of its HTTP
//! headers, and the two framings of its transports. Bytes come in and bytes go out. It never reads or writes a stream,
//! asks for the time, logs, or decides what anybody may do.
//!
//! ```text
//!   HTTP body ────────────────────────────┐                  ┌─▶ method: what it is about   era, headers: how it is spoken
//!   SSE ──── sse::Reader ────▶ event data ┼─▶ Message::parse ┤
//!   stdio ── lines::Reader ──▶ line ──────┘                  └─▶ splice, list: the same bytes but for what changes
//!                                                                                │
//!   HTTP body, sse::event, lines::frame ◀──────── body ◀──── answer: ours ◀──────┘
//! ```
//!
//! A message is read once. What was found is kept as positions in its body ([`message::Head`]), so it borrows nothing
//! and travels with the bytes. A change replaces one member and leaves every other byte as it came: numbers keep their
//! digits, texts their escapes, objects their order and their unknown members.
//!
//! Reading is strict where two readers could see two messages. A name that occurs twice is refused in a message, its `params`, their
//! `_meta`, `ref` and `arguments`, on the way to an argument that a header repeats, and in lists that are filtered; so is a name that
//! means something there, in another case. Deeper inside (the name of a client, the model that a server asks for), the last one counts.

pub mod answer;
pub mod era;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod headers;
pub mod id;
mod json;
pub mod lines;
pub mod list;
pub mod malformed;
pub mod message;
pub mod method;
mod names;
mod patch;
pub mod raw;
pub mod splice;
pub mod sse;

pub use era::{Era, Refusal};
pub use id::Id;
pub use malformed::Malformed;
pub use message::{Kind, Message};
pub use method::Method;
pub use raw::Raw;
pub use splice::Edit;
