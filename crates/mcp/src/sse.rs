//! Server-sent events: the framing of streams over HTTP.
//!
//! [`Reader`] takes a stream apart, [`event`], [`parts`], [`comment`] and [`retry`] write one. What is read keeps its bytes beside
//! its meaning, so that what nobody changes is passed on as it came.

mod reader;
mod writer;

pub use reader::{Event, Item, Limits, Reader, TooLong};
pub use writer::{comment, event, parts, retry};
