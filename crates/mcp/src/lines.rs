//! Messages as lines: the framing of stdio.
//!
//! One message is one line. [`Reader`] splits a server's output into lines, [`message`] finds the message in a line,
//! [`frame`] writes a message as a line.

mod ends;

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::{memchr, memrchr};
use serde_json::value::RawValue;

use self::ends::Ends;
pub use self::ends::{LineError, Responded};
use crate::message::Message;

/// The size of a read, in bytes.
const CHUNK: usize = 64 * 1024;
/// With less free capacity than this, the buffer is grown before reading.
const LEAST: usize = 4 * 1024;
/// The longest line that is copied. A longer one is split off the buffer and keeps it alive; a short one must not,
/// because it may be queued for long.
const COPIED: usize = 4 * 1024;
/// The most that is reserved after a long line, and the most capacity that is kept after one.
const KEPT: usize = 1024 * 1024;

/// Splits a byte stream into lines. Long lines are not copied, and no byte is scanned twice.
#[derive(Debug)]
pub struct Reader {
    limit: usize,
    /// Bytes that were not handed out yet.
    buffer: BytesMut,
    /// The length of the last line: the next one is likely to be as long.
    last: usize,
    /// How many bytes of the buffer were scanned and hold no line end.
    scanned: usize,
    /// The ends of the current line, if it is too long and is skipped.
    skipped: Option<Ends>,
}

/// The candidate for a message in a line of server output: from the first `{` to the last `}`. Servers that log to
/// standard output put other text around it. The bytes between the two are not changed.
pub fn message(line: &[u8]) -> Option<&[u8]> {
    let start = memchr(b'{', line)?;
    let end = memrchr(b'}', line)?;
    line.get(start..=end)
}

/// The id of the request that a malformed line claims to respond to, if that id is a number.
pub fn answered(found: &[u8]) -> Option<u64> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(found).ok()?;
    let id = members.get("id").filter(|_| !members.contains_key("method"))?;
    id.get().parse().ok()
}

/// A message as a line with its terminator. A message that spans several lines is joined: in JSON, line ends occur only
/// between values, where a space means the same. The bytes of a message that has them for itself are not copied.
pub fn frame(message: Message) -> Bytes {
    let mut line = message.into_body().try_into_mut().unwrap_or_else(|shared| {
        let mut copy = BytesMut::with_capacity(shared.len() + 1);
        copy.extend_from_slice(&shared);
        copy
    });
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.put_u8(b'\n');
    line.freeze()
}

// === impl Reader ===

impl Reader {
    /// A reader for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: BytesMut::new(), last: 0, scanned: 0, skipped: None }
    }

    /// Appends bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The buffer to read from the stream into, instead of calling `feed`. It has capacity for as much as is likely to
    /// arrive.
    pub fn space(&mut self) -> &mut impl BufMut {
        let missing = (self.last + 1).min(KEPT).saturating_sub(self.buffer.len());
        if self.buffer.capacity() - self.buffer.len() < missing.clamp(LEAST, CHUNK) {
            self.buffer.reserve(missing.max(CHUNK));
        }
        &mut self.buffer
    }

    /// The next complete line, without its `
    /// `.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineError> {
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(offset) = memchr(b'\n', unseen) else {
            self.wait();
            return Ok(None);
        };
        let length = self.scanned + offset;
        let mut line = self.buffer.split_to(length + 1);
        self.scanned = 0;
        line.truncate(length);
        if let Some(mut ends) = self.skipped.take() {
            ends.extend(&line);
            return Err(LineError { limit: self.limit, ends });
        }
        if length > self.limit {
            return Err(LineError { limit: self.limit, ends: Ends::of(&line) });
        }
        self.last = length;
        if length <= COPIED {
            return Ok(Some(Bytes::copy_from_slice(&line)));
        }
        if length > KEPT && self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        Ok(Some(line.freeze()))
    }

    /// What is left at the end of the stream: a line without a terminator.
    pub fn finish(self) -> Option<Bytes> {
        (self.skipped.is_none() && !self.buffer.is_empty()).then(|| self.buffer.freeze())
    }

    /// There is no line end yet. Of an oversized line, only the ends are kept.
    fn wait(&mut self) {
        self.scanned = self.buffer.len();
        match &mut self.skipped {
            Some(ends) => ends.extend(&self.buffer),
            None if self.scanned > self.limit => self.skipped = Some(Ends::of(&self.buffer)),
            None => return,
        }
        // The memory of an oversized line is released, too.
        self.buffer = BytesMut::new();
        self.scanned = 0;
    }
}

#[cfg(test)]
mod tests;
