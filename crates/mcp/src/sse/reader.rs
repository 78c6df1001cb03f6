//! Parsing events, in whatever chunks the stream arrives.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

/// How much buffer capacity a reader keeps after an event, in bytes.
const KEPT: usize = 64 * 1024;

/// The limits on what a reader buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a line, in bytes.
    pub line: usize,
    /// The maximum length of an event, in bytes, with all its lines.
    pub event: usize,
}

/// A piece of the stream. All items together are the stream, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// A comment, or an empty line of its own. It has no content, but keeps connections alive.
    Quiet(Bytes),
}

/// An event: all lines up to an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The bytes as received, to forward the event unchanged.
    pub raw: Bytes,
    /// The event name. `None` means `message`.
    pub name: Option<Bytes>,
    /// The data, its lines joined by `
    /// `. Clients ignore events without it.
    pub data: Option<Bytes>,
    /// The event id, from which a client can resume.
    pub id: Option<Bytes>,
    /// The reconnection delay for clients, in milliseconds.
    pub retry: Option<u64>,
}

/// A line or event exceeds its limit. The buffered bytes are kept: see [`Reader::into_rest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventStreamError {
    /// A line is too long.
    #[error("a line of more than {limit} bytes in an event stream")]
    Line {
        /// The limit, in bytes.
        limit: usize,
    },
    /// An event is too long.
    #[error("an event of more than {limit} bytes")]
    Event {
        /// The limit, in bytes.
        limit: usize,
    },
}

/// Splits a stream into items. No byte is scanned twice to find line ends.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    /// Bytes that were not handed out yet. The buffer starts with the current item.
    buffer: BytesMut,
    /// How many bytes of the buffer were scanned.
    scanned: usize,
    /// Where the current line starts.
    line: usize,
    /// The last line ended with `\r`, which is also the last byte so far. A `
    /// ` that follows belongs to the same line end.
    after_return: bool,
    /// No line was read yet: the first one may start with a byte order mark.
    at_start: bool,
    fields: Fields,
}

/// The fields of the current event. Ranges are positions in the buffer.
#[derive(Debug, Default)]
struct Fields {
    /// Whether there was any line that is not a comment.
    any: bool,
    name: Option<Range<usize>>,
    data: Data,
    id: Option<Range<usize>>,
    retry: Option<u64>,
}

#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// A single line, which is the usual case, is not copied.
    Line(Range<usize>),
    Joined(BytesMut),
}

// === impl Event ===

impl Event {
    /// Whether the event carries a message: it has data, and its name is `message` or none.
    pub fn is_message(&self) -> bool {
        self.data.is_some() && self.name.as_deref().is_none_or(|name| name == b"message")
    }
}

// === impl Reader ===

impl Reader {
    /// A reader at the start of a stream.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffer: BytesMut::new(),
            scanned: 0,
            line: 0,
            after_return: false,
            at_start: true,
            fields: Fields::default(),
        }
    }

    /// Appends bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete item. `None` until more bytes are fed.
    pub fn next_item(&mut self) -> Result<Option<Item>, EventStreamError> {
        loop {
            let Some((line, next)) = self.next_line()? else { return Ok(None) };
            let at_start = std::mem::take(&mut self.at_start);
            let text = self.buffer.get(line.clone()).unwrap_or_default();
            let mark = if at_start && text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
            let line = line.start + mark..line.end;
            match text.get(mark) {
                None if self.fields.any => return Ok(Some(Item::Event(self.take_event(next)))),
                Some(b':') if self.fields.any => {}
                None | Some(b':') => return Ok(Some(Item::Quiet(self.take(next)))),
                Some(_) => self.fields.add(&self.buffer, line),
            }
            self.line = next;
        }
    }

    /// How many bytes were fed and not handed out yet.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// The bytes of an incomplete item. At the end of a stream, clients ignore them; whether to forward them is up to
    /// the caller.
    pub fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }

    /// The position of the next line, and of the one after it.
    fn next_line(&mut self) -> Result<Option<(Range<usize>, usize)>, EventStreamError> {
        if self.after_return && self.scanned < self.buffer.len() {
            self.after_return = false;
            if self.buffer.get(self.scanned) == Some(&b'\n') {
                self.scanned += 1;
                self.line = self.scanned;
            }
        }
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let end = unseen.iter().position(|byte| matches!(byte, b'\n' | b'\r')).map(|offset| self.scanned + offset);
        let line = self.line..end.unwrap_or(self.buffer.len());
        self.check(&line)?;
        let Some(end) = end else {
            self.scanned = self.buffer.len();
            return Ok(None);
        };
        let mut next = end + 1;
        if self.buffer.get(end) == Some(&b'\r') {
            match self.buffer.get(next) {
                Some(b'\n') => next += 1,
                Some(_) => {}
                None => self.after_return = true,
            }
        }
        self.scanned = next;
        Ok(Some((line, next)))
    }

    fn check(&self, line: &Range<usize>) -> Result<(), EventStreamError> {
        let Limits { line: longest_line, event: longest_event } = self.limits;
        if line.len() > longest_line {
            return Err(EventStreamError::Line { limit: longest_line });
        }
        if line.end > longest_event {
            return Err(EventStreamError::Event { limit: longest_event });
        }
        Ok(())
    }

    /// Hands out the bytes up to a position. The next item starts there.
    fn take(&mut self, end: usize) -> Bytes {
        self.scanned = 0;
        self.line = 0;
        let taken = self.buffer.split_to(end).freeze();
        if taken.len() > KEPT {
            // Otherwise the buffer would keep the memory of a long event for as long as the stream is open.
            self.buffer = BytesMut::from(&*self.buffer);
        }
        taken
    }

    fn take_event(&mut self, end: usize) -> Event {
        let raw = self.take(end);
        let fields = std::mem::take(&mut self.fields);
        let slice = |range: Range<usize>| raw.slice(range);
        let data = match fields.data {
            Data::None => None,
            Data::Line(range) => Some(slice(range)),
            Data::Joined(data) => Some(data.freeze()),
        };
        let name = fields.name.filter(|name| !name.is_empty()).map(slice);
        Event { name, data, id: fields.id.map(slice), retry: fields.retry, raw }
    }
}

// === impl Fields ===

impl Fields {
    /// Parses a line that is neither empty nor a comment.
    fn add(&mut self, buffer: &[u8], line: Range<usize>) {
        self.any = true;
        let text = buffer.get(line.clone()).unwrap_or_default();
        let colon = text.iter().position(|byte| *byte == b':');
        let name = text.get(..colon.unwrap_or(text.len())).unwrap_or_default();
        let after = text.get(colon.map_or(text.len(), |colon| colon + 1)..).unwrap_or_default();
        let value = after.strip_prefix(b" ").unwrap_or(after);
        let range = line.end - value.len()..line.end;
        match name {
            b"data" => self.data.add(buffer, value, range),
            b"event" => self.name = Some(range),
            b"id" if !value.contains(&0) => self.id = Some(range),
            b"retry" => self.retry = milliseconds(value).or(self.retry),
            _ => {}
        }
    }
}

// === impl Data ===

impl Data {
    fn add(&mut self, buffer: &[u8], value: &[u8], range: Range<usize>) {
        match self {
            Self::None => *self = Self::Line(range),
            Self::Line(first) => {
                let mut joined = BytesMut::from(buffer.get(first.clone()).unwrap_or_default());
                joined.put_u8(b'\n');
                joined.put_slice(value);
                *self = Self::Joined(joined);
            }
            Self::Joined(joined) => {
                joined.put_u8(b'\n');
                joined.put_slice(value);
            }
        }
    }
}

/// Parses digits; any other value means that the field is ignored.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests;
