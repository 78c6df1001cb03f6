//! Server-sent events: the framing of streams over HTTP.
//!
//! [`Reader`] parses a stream; [`event`], [`parts`], [`comment`] and [`retry`] write one. A parsed event keeps its
//! bytes, so that an unchanged event is forwarded as received.

mod reader;
mod writer;

pub use reader::{Event, EventStreamError, Item, Limits, Reader};
pub use writer::{comment, event, parts, retry};
