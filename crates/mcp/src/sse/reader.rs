//! Reading events, whatever the pieces are in which the stream comes.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

/// How much memory of an event a reader keeps for the next one, in bytes.
const KEPT: usize = 64 * 1024;

/// How much of a stream is held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest line, in bytes.
    pub line: usize,
    /// The longest event, in bytes, with everything that belongs to it.
    pub event: usize,
}

/// A piece of the stream. All pieces together are the stream, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// A comment, or an empty line of its own. It means nothing, but keeps connections alive.
    Quiet(Bytes),
}

/// An event: all lines up to an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The bytes as they came, to pass the event on unchanged.
    pub raw: Bytes,
    /// The name. Nothing means `message`.
    pub name: Option<Bytes>,
    /// The data, its lines joined by `\n`. Readers act on events that have it.
    pub data: Option<Bytes>,
    /// The id of the event, from which a client could go on.
    pub id: Option<Bytes>,
    /// After how many milliseconds a client should connect again.
    pub retry: Option<u64>,
}

/// More of a stream belongs together than may be held. What was held is still there: see [`Reader::into_rest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLong {
    /// A line is too long.
    #[error("a line of more than {limit} bytes in an event stream")]
    Line {
        /// How long a line may be.
        limit: usize,
    },
    /// An event is too long.
    #[error("an event of more than {limit} bytes")]
    Event {
        /// How long an event may be.
        limit: usize,
    },
}

/// Takes a stream apart. No byte is looked at twice to find where lines end.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    /// What is not handed out yet. It begins where the piece under way begins.
    buffer: BytesMut,
    /// How much of it was looked at.
    scanned: usize,
    /// Where the line under way begins.
    line: usize,
    /// The last line ended with `\r`, and the stream so far with it. If `\n` follows, the two are one end.
    after_return: bool,
    /// No line was read yet: the first one may begin with a byte order mark.
    at_start: bool,
    fields: Fields,
}

/// What the lines of the event under way said. Ranges are positions in the buffer.
#[derive(Debug, Default)]
struct Fields {
    /// Whether there was any line but comments.
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
    /// One line, which is the usual case, need not be copied.
    Line(Range<usize>),
    Joined(BytesMut),
}

// === impl Event ===

impl Event {
    /// Whether the event carries a message: it has data, and no other name than `message`.
    pub fn is_message(&self) -> bool {
        self.data.is_some() && self.name.as_deref().is_none_or(|name| name == b"message")
    }
}

// === impl Reader ===

impl Reader {
    /// A reader at the beginning of a stream.
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

    /// Takes bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole piece. Nothing until more bytes are fed.
    pub fn next_item(&mut self) -> Result<Option<Item>, TooLong> {
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

    /// What belongs to no whole piece. When a stream has ended, readers ignore it; to pass it on is up to the caller.
    pub fn into_rest(self) -> Bytes {
        self.buffer.freeze()
    }

    /// Where the next line is, and where the one behind it begins.
    fn next_line(&mut self) -> Result<Option<(Range<usize>, usize)>, TooLong> {
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

    fn check(&self, line: &Range<usize>) -> Result<(), TooLong> {
        let Limits { line: longest_line, event: longest_event } = self.limits;
        if line.len() > longest_line {
            return Err(TooLong::Line { limit: longest_line });
        }
        if line.end > longest_event {
            return Err(TooLong::Event { limit: longest_event });
        }
        Ok(())
    }

    /// Hands out the bytes up to a position. The next piece begins there.
    fn take(&mut self, end: usize) -> Bytes {
        self.scanned = 0;
        self.line = 0;
        let taken = self.buffer.split_to(end).freeze();
        if taken.len() > KEPT {
            // The rest of the buffer would keep the memory of a long event for as long as the stream is open.
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
    /// Takes note of a line that is neither empty nor a comment.
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

/// Digits and nothing else, or the field is ignored.
fn milliseconds(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests;
