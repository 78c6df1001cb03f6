//! Finds the JSON-RPC error in a response while its bytes pass, without keeping them.
//!
//! A response is JSON or a stream of events, comes in parts that are cut anywhere, and may be of any length. What is kept is the name of
//! a member and the code and the message of an error, each bounded.

use memchr::memchr2;

/// The longest name of a member that is compared, in bytes.
const KEY: usize = 64;
/// How much of a code or a message is kept, as JSON, in bytes.
const VALUE: usize = 2048;

/// The error in a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcError {
    /// Its code.
    pub code: Option<i64>,
    /// Its message.
    pub message: String,
}

/// How a response frames its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// It is one message.
    Json,
    /// A stream of events with a message each.
    Events,
}

/// A response that passes.
#[derive(Debug)]
pub struct ReplyScan {
    framing: Framing,
    message: MessageScan,
    line: LineState,
    found: Option<RpcError>,
}

/// Where in a line of an event stream the scan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    /// So many bytes of `data:` were seen, and nothing else.
    Field(usize),
    /// In the value, whose first space is not part of it.
    Value { is_first: bool },
    /// In another field.
    Other,
    /// After a carriage return: a line feed belongs to the same line end.
    Return,
}

/// One message that passes.
#[derive(Debug, Default)]
struct MessageScan {
    /// How many objects and lists are open.
    depth: usize,
    lexer: Lexer,
    /// Whether the next string at this depth is the name of a member.
    expects_key: bool,
    /// The name as JSON, with its quotes.
    key: Vec<u8>,
    /// The member of the message that is passing.
    member: Member,
    /// The member of the error whose value is kept.
    slot: Option<Slot>,
    code: Vec<u8>,
    text: Vec<u8>,
    has: Members,
    /// Whether it is not a JSON object, or has ended.
    is_over: bool,
}

/// Where in the text the scan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lexer {
    #[default]
    Tokens,
    String,
    /// In a string, after a backslash.
    Escape,
}

/// Which members a message has, beside `null`.
#[derive(Clone, Copy, Debug, Default)]
struct Members {
    error: bool,
    method: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Member {
    #[default]
    Other,
    /// `error`, whose value has not begun.
    ErrorExpected,
    /// `error`, an object.
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Code,
    Message,
}

// === impl ReplyScan ===

impl ReplyScan {
    /// A response that begins.
    pub fn new(framing: Framing) -> Self {
        Self { framing, message: MessageScan::default(), line: LineState::Field(0), found: None }
    }

    /// The next part.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.found.is_some() {
            return;
        }
        match self.framing {
            Framing::Json => self.message.feed(bytes),
            Framing::Events => self.feed_events(bytes),
        }
    }

    /// The error in what was fed, at the end of it.
    pub fn finish(&mut self) -> Option<RpcError> {
        self.end_message();
        self.found.take()
    }

    fn end_message(&mut self) {
        let error = std::mem::take(&mut self.message).error();
        self.found = self.found.take().or(error);
    }

    fn feed_events(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            bytes = match (self.line, *first) {
                (LineState::Return, b'\n') => {
                    self.line = LineState::Field(0);
                    rest
                }
                (LineState::Return, _) => {
                    self.line = LineState::Field(0);
                    bytes
                }
                (_, b'\r' | b'\n') => {
                    self.end_line(*first == b'\r');
                    rest
                }
                (LineState::Field(seen), byte) => {
                    self.line = field(seen, byte);
                    rest
                }
                (LineState::Value { is_first: true }, b' ') => {
                    self.line = LineState::Value { is_first: false };
                    rest
                }
                (LineState::Value { .. } | LineState::Other, _) => self.feed_line(bytes),
            };
        }
    }

    /// Takes the rest of a line, and returns what is left.
    fn feed_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
        let (value, rest) = bytes.split_at(end);
        if let LineState::Value { .. } = self.line {
            self.message.feed(value);
            self.line = LineState::Value { is_first: false };
        }
        rest
    }

    fn end_line(&mut self, is_return: bool) {
        match self.line {
            // An empty line ends an event.
            LineState::Field(0) => self.end_message(),
            LineState::Value { .. } => self.message.feed(b"\n"),
            LineState::Field(_) | LineState::Other | LineState::Return => {}
        }
        self.line = if is_return { LineState::Return } else { LineState::Field(0) };
    }
}

fn field(seen: usize, byte: u8) -> LineState {
    const DATA: &[u8] = b"data:";
    match DATA.get(seen) {
        Some(expected) if *expected == byte && seen + 1 == DATA.len() => LineState::Value { is_first: true },
        Some(expected) if *expected == byte => LineState::Field(seen + 1),
        _ => LineState::Other,
    }
}

// === impl MessageScan ===

impl MessageScan {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !self.is_over {
            bytes = if self.lexer == Lexer::Tokens { bytes } else { self.string(bytes) };
            let Some((first, rest)) = bytes.split_first() else { return };
            self.token(*first);
            bytes = rest;
        }
    }

    /// Takes the rest of a string, and returns what is left.
    fn string<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while self.lexer != Lexer::Tokens && !bytes.is_empty() {
            let end = if self.lexer == Lexer::Escape { Some(0) } else { memchr2(b'"', b'\\', bytes) };
            let length = end.map_or(bytes.len(), |end| end + 1);
            let (part, rest) = bytes.split_at(length.min(bytes.len()));
            self.keep(part);
            self.lexer = match (self.lexer, end.and(part.last())) {
                (Lexer::String, Some(b'\\')) => Lexer::Escape,
                (Lexer::String, Some(b'"')) => Lexer::Tokens,
                _ => Lexer::String,
            };
            bytes = rest;
        }
        bytes
    }

    /// Takes a byte outside of strings.
    fn token(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => return,
            // A byte order mark may stand before the message.
            0xef | 0xbb | 0xbf if self.depth == 0 => return,
            b'{' if self.depth == 0 => {}
            _ if self.depth == 0 => {
                self.is_over = true;
                return;
            }
            _ => {}
        }
        if self.depth == 1 && self.member == Member::ErrorExpected {
            // `null` says that there is none.
            self.has.error |= byte != b'n';
            self.member = if byte == b'{' { Member::Error } else { Member::Other };
        }
        match byte {
            b'"' => {
                self.lexer = Lexer::String;
                if self.expects_key {
                    self.key.clear();
                }
                self.keep(b"\"");
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.expects_key = byte == b'{' && self.is_inspected();
            }
            b'}' | b']' => self.close(),
            b':' if self.expects_key => self.end_key(),
            b',' if self.is_inspected() => {
                self.slot = None;
                self.expects_key = true;
            }
            other => self.keep(&[other]),
        }
    }

    /// Whether names of members count here: in the message, and in its error.
    fn is_inspected(&self) -> bool {
        self.depth == 1 || self.depth == 2 && self.member == Member::Error
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.slot = self.slot.filter(|_| self.depth > 2);
        if self.depth == 1 {
            self.member = Member::Other;
        }
        self.expects_key = false;
        self.is_over = self.depth == 0;
    }

    fn end_key(&mut self) {
        self.expects_key = false;
        let name: String = serde_json::from_slice(&self.key).unwrap_or_default();
        match (self.depth, name.as_str()) {
            (1, "error") => self.member = Member::ErrorExpected,
            (1, "method") => self.has.method = true,
            // Of several members of one name, the last one counts.
            (2, "code") => (self.slot, self.code) = (Some(Slot::Code), Vec::new()),
            (2, "message") => (self.slot, self.text) = (Some(Slot::Message), Vec::new()),
            _ => {}
        }
    }

    /// Keeps bytes if they are the name of a member, or a value that is wanted.
    fn keep(&mut self, bytes: &[u8]) {
        let (kept, limit) = match self.slot {
            _ if self.expects_key => (&mut self.key, KEY),
            Some(Slot::Code) if self.depth == 2 => (&mut self.code, VALUE),
            Some(Slot::Message) if self.depth == 2 => (&mut self.text, VALUE),
            _ => return,
        };
        let room = limit.saturating_sub(kept.len());
        kept.extend(bytes.iter().take(room));
    }

    /// The error of the message, if it is a reply.
    fn error(self) -> Option<RpcError> {
        if !self.has.error || self.has.method {
            return None;
        }
        Some(RpcError { code: serde_json::from_slice(&self.code).ok(), message: text(self.text) })
    }
}

/// A text that may be cut off, from its JSON.
fn text(mut json: Vec<u8>) -> String {
    if let Ok(text) = serde_json::from_slice(&json) {
        return text;
    }
    // At most an escape of two surrogates stands at the end.
    for _ in 0..12 {
        json.push(b'"');
        if let Ok(text) = serde_json::from_slice(&json) {
            return text;
        }
        json.truncate(json.len().saturating_sub(2));
    }
    String::new()
}

#[cfg(test)]
mod tests;
