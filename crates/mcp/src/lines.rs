//! Messages as lines: the framing of stdio.
//!
//! One message is one line. [`Reader`] cuts what a server writes into lines, [`message`] finds the message in a line,
//! [`frame`] makes a line of a message.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::{memchr, memrchr};
use serde_json::value::RawValue;

use crate::message::Message;

/// How much is read at once, in bytes.
const CHUNK: usize = 64 * 1024;
/// With less room than this, room is made before reading.
const LEAST: usize = 4 * 1024;
/// The longest line that is copied. A longer one is cut out of what was read and keeps all of it; a short one must not,
/// because it may wait long for its reader.
const COPIED: usize = 4 * 1024;
/// The most that is reserved because the line before was long, and the most that is kept when one was.
const KEPT: usize = 1024 * 1024;

/// Cuts a stream of bytes into lines. Long lines are not copied, and no byte is looked at twice.
#[derive(Debug)]
pub struct Reader {
    limit: usize,
    /// What is not handed out yet.
    buffer: BytesMut,
    /// How long the last line was: the next one is likely to be as long.
    last: usize,
    /// How much of it holds no end of a line.
    scanned: usize,
    /// The line under way was too long, and is skipped to its end.
    skipping: bool,
}

/// A line is longer than allowed. It is skipped; the lines behind it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of more than {limit} bytes")]
pub struct TooLong {
    /// How long a line may be.
    pub limit: usize,
}

/// What may be a message in a line that a server wrote: from the first `{` to the last `}`. Servers that log to their
/// standard output put other things around it. Not a byte between the two is changed.
pub fn message(line: &[u8]) -> Option<&[u8]> {
    let start = memchr(b'{', line)?;
    let end = memrchr(b'}', line)?;
    line.get(start..=end)
}

/// The request that something claims to answer which is no message: by its id, if that is a number.
pub fn answered(found: &[u8]) -> Option<u64> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(found).ok()?;
    let id = members.get("id").filter(|_| !members.contains_key("method"))?;
    id.get().parse().ok()
}

/// A message as a line, with its end. A message that is written over several lines is joined: in JSON, line ends stand
/// only between values, and a space means the same.
pub fn frame(message: &Message) -> Bytes {
    let mut line = BytesMut::with_capacity(message.body().len() + 1);
    line.extend_from_slice(message.body());
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.put_u8(b'\n');
    line.freeze()
}

// === impl Reader ===

impl Reader {
    /// A reader of lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, buffer: BytesMut::new(), last: 0, scanned: 0, skipping: false }
    }

    /// Takes bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Where bytes of the stream can be read into, instead of feeding them. There is room for as much as is likely to come.
    pub fn space(&mut self) -> &mut impl BufMut {
        let missing = (self.last + 1).min(KEPT).saturating_sub(self.buffer.len());
        if self.buffer.capacity() - self.buffer.len() < missing.clamp(LEAST, CHUNK) {
            self.buffer.reserve(missing.max(CHUNK));
        }
        &mut self.buffer
    }

    /// The next whole line, without its `\n`.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, TooLong> {
        loop {
            let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some(offset) = memchr(b'\n', unseen) else {
                return self.wait();
            };
            let length = self.scanned + offset;
            let mut line = self.buffer.split_to(length + 1);
            self.scanned = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if length > self.limit {
                return Err(TooLong { limit: self.limit });
            }
            line.truncate(length);
            self.last = length;
            if length <= COPIED {
                return Ok(Some(Bytes::copy_from_slice(&line)));
            }
            if length > KEPT && self.buffer.is_empty() {
                self.buffer = BytesMut::new();
            }
            return Ok(Some(line.freeze()));
        }
    }

    /// What is left when the stream has ended: a line without an end.
    pub fn finish(self) -> Option<Bytes> {
        (!self.skipping && !self.buffer.is_empty()).then(|| self.buffer.freeze())
    }

    /// There is no end of a line yet.
    fn wait(&mut self) -> Result<Option<Bytes>, TooLong> {
        self.scanned = self.buffer.len();
        let too_long = self.scanned > self.limit;
        if too_long || self.skipping {
            // Nor is the memory of what is too long kept.
            self.buffer = BytesMut::new();
            self.scanned = 0;
        }
        if too_long && !std::mem::replace(&mut self.skipping, true) {
            return Err(TooLong { limit: self.limit });
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
