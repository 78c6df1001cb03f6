//! Walking JSON text by position, one level at a time.
//!
//! A [`Cursor`] is a position in a text. [`Cursor::object`] and [`Cursor::array`] walk objects and arrays whose content
//! matters; serde_json checks and skips everything else, without recursion however deep a value is nested. So one walk
//! parses a message, and the nesting of the input is never the depth of the call stack.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use crate::message_error::MessageError;

/// The position of a value in its text.
///
/// Positions have 32 bits, which keeps the head of a message small. [`Cursor::new`] rejects longer texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

/// A position in a text.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// The name of a member.
#[derive(Debug)]
pub(crate) struct Key<'a> {
    /// The name, unescaped.
    pub(crate) name: Cow<'a, str>,
    /// Where the member starts.
    pub(crate) start: usize,
}

/// A name occurs twice in an object: some backends read the first member, most the last.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DuplicateMemberError;

/// The value of a JSON string. `None` if the text is not a string, or not valid Unicode (half a surrogate pair).
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(raw).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

/// The member of an object, as most backends find it: the last one of that name.
pub(crate) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    find(object, name).map(|(value, _)| value)
}

/// The member of an object that every backend finds.
pub(crate) fn only_member<'a>(object: &'a str, name: &str) -> Result<Option<&'a str>, DuplicateMemberError> {
    match find(object, name) {
        None => Ok(None),
        Some((value, 1)) => Ok(Some(value)),
        Some(_) => Err(DuplicateMemberError),
    }
}

/// The last member of a name, and how many there are.
fn find<'a>(object: &'a str, name: &str) -> Option<(&'a str, usize)> {
    let mut cursor = Cursor::new(object).ok()?;
    let mut found = None;
    let mut count = 0;
    let walked: Result<_, MessageError> = cursor.object(|cursor, key| {
        let value = cursor.skip()?;
        if key.name == name {
            found = Some(cursor.text(value));
            count += 1;
        }
        Ok(())
    });
    walked.ok().and(found).map(|value| (value, count))
}

/// The first element of an array.
pub(crate) fn first(list: &str) -> Option<&str> {
    let mut cursor = Cursor::new(list).ok()?;
    let mut found = None;
    let walked: Result<_, MessageError> = cursor.array(|cursor| {
        let value = cursor.skip()?;
        found = found.or(Some(cursor.text(value)));
        Ok(())
    });
    walked.ok().and(found)
}

// === impl Span ===

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        let narrow = |position| u32::try_from(position).unwrap_or(u32::MAX);
        Self { start: narrow(start), end: narrow(end) }
    }

    pub(crate) fn start(self) -> usize {
        self.start as usize
    }

    pub(crate) fn end(self) -> usize {
        self.end as usize
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start()..self.end()
    }
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    /// A cursor at the start of a text.
    pub(crate) fn new(text: &'a str) -> Result<Self, MessageError> {
        Self::starting(text, 0)
    }

    /// A cursor inside a text.
    pub(crate) fn starting(text: &'a str, at: usize) -> Result<Self, MessageError> {
        if u32::try_from(text.len()).is_err() {
            return Err(MessageError::Syntax { at: u32::MAX as usize });
        }
        Ok(Self { text, at })
    }

    /// Where the next token starts, after any white space.
    pub(crate) fn position(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// The text of a value that was skipped.
    pub(crate) fn text(&self, span: Span) -> &'a str {
        self.text.get(span.range()).unwrap_or_default()
    }

    /// The first byte of the next token, after any white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            if !is_space(*byte) {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Skips one value of any kind.
    pub(crate) fn skip(&mut self) -> Result<Span, MessageError> {
        let start = self.position();
        let rest = self.text.get(start..).unwrap_or_default();
        if let Some(text) = plain_string(rest) {
            self.at = start + text.len() + 2;
            return Ok(Span::new(start, self.at));
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let Some(Ok(value)) = values.next() else { return Err(self.syntax()) };
        self.at = start + value.get().len();
        Ok(Span::new(start, self.at))
    }

    /// Walks an object. `member` is called after every name and must skip the value.
    pub(crate) fn object<E: From<MessageError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, Key<'a>) -> Result<(), E>,
    ) -> Result<Span, E> {
        self.sequence(b'{', b'}', |cursor| {
            let key = cursor.key()?;
            member(cursor, key)
        })
    }

    /// Walks an array. `element` is called before every element and must skip it.
    pub(crate) fn array<E: From<MessageError>>(
        &mut self,
        element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Span, E> {
        self.sequence(b'[', b']', element)
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), MessageError> {
        if self.peek().is_some() { Err(self.syntax()) } else { Ok(()) }
    }

    fn sequence<E: From<MessageError>>(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Span, E> {
        let start = self.position();
        self.expect(open)?;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(Span::new(start, self.at));
        }
        loop {
            item(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(Span::new(start, self.at));
                }
                _ => return Err(self.syntax().into()),
            }
        }
    }

    fn key(&mut self) -> Result<Key<'a>, MessageError> {
        let start = self.position();
        let name = if let Some(name) = self.text.get(start..).and_then(plain_string) {
            self.at = start + name.len() + 2;
            Cow::Borrowed(name)
        } else {
            let span = self.skip()?;
            string(self.text(span)).ok_or(MessageError::Syntax { at: start })?
        };
        self.expect(b':')?;
        Ok(Key { name, start })
    }

    fn expect(&mut self, byte: u8) -> Result<(), MessageError> {
        if self.peek() != Some(byte) {
            return Err(self.syntax());
        }
        self.at += 1;
        Ok(())
    }

    fn syntax(&self) -> MessageError {
        MessageError::Syntax { at: self.at }
    }
}

/// The value of an escape-free string at the start of a text. Names and most short values are such strings; calling
/// serde_json for each of them takes longer than all the rest.
fn plain_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?;
    let end = inner.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
    inner.get(end..)?.starts_with('"').then(|| inner.get(..end))?
}

/// The four white-space bytes of JSON.
pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests;
