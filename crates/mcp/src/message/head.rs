//! What parsing found in a message, as positions in its body.

use super::Kind;
use super::parts::{MESSAGE, Part, Table};
use crate::id::is_id;
use crate::json::{self, Cursor, Span};
use crate::message_error::MessageError;
use crate::names::Names;
use crate::patch::Patches;

/// What is known of a message without parsing it again. It borrows nothing and belongs to one body only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    kind: Kind,
    spans: Spans,
    /// The unescaped method, if the body writes it with escapes, as `tools\/call`.
    method: Option<Box<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Spans([Option<Span>; Part::COUNT]);

// === impl Head ===

impl Head {
    /// Parses a message in one walk over its bytes.
    pub(super) fn read(body: &[u8]) -> Result<Self, MessageError> {
        if body.iter().find(|byte| !json::is_space(**byte)) == Some(&b'[') {
            return Err(MessageError::Batch);
        }
        let text = std::str::from_utf8(body).map_err(|_| MessageError::NotUtf8)?;
        let mut cursor = Cursor::new(text)?;
        match cursor.peek() {
            Some(b'{') => {}
            Some(_) => cursor.skip().and(Err(MessageError::NotAnObject))?,
            None => cursor.skip().map(drop)?,
        }
        let mut spans = Spans([None; Part::COUNT]);
        walk(&mut cursor, &MESSAGE, &mut spans)?;
        cursor.end()?;
        let method = method(text, &spans)?;
        let kind = kind(text, &spans)?;
        Ok(Self { kind, spans, method })
    }

    /// The head of a response whose id and result are at these positions.
    pub(super) fn of_response(jsonrpc: Span, id: Span, result: Span) -> Self {
        let mut spans = Spans([None; Part::COUNT]);
        for (part, span) in [(Part::Jsonrpc, jsonrpc), (Part::Id, id), (Part::Result, result)] {
            spans.set(part, span);
        }
        Self { kind: Kind::Response, spans, method: None }
    }

    /// What kind of message this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn decoded_method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(crate) fn span(&self, part: Part) -> Option<Span> {
        self.spans.get(part)
    }

    /// The head after leaves were replaced and nothing else changed.
    pub(crate) fn shifted(&self, patches: &Patches<'_>) -> Self {
        let shift = |span: Span| Span::new(patches.shifted(span.start()), patches.shifted(span.end()));
        let spans = Spans(self.spans.0.map(|span| span.map(shift)));
        Self { kind: self.kind, spans, method: self.method.clone() }
    }
}

// === impl Spans ===

impl Spans {
    fn get(&self, part: Part) -> Option<Span> {
        self.0.get(part as usize).copied().flatten()
    }

    fn set(&mut self, part: Part, span: Span) {
        if let Some(slot) = self.0.get_mut(part as usize) {
            *slot = Some(span);
        }
    }

    /// The text of a part. `None` for `null`, which means the same as a missing member.
    fn text<'a>(&self, text: &'a str, part: Part) -> Option<&'a str> {
        text.get(self.get(part)?.range()).filter(|value| *value != "null")
    }
}

/// Walks an object and those members that have a table of their own. These are nested four deep at most.
fn walk(cursor: &mut Cursor<'_>, table: &'static Table, spans: &mut Spans) -> Result<Span, MessageError> {
    let mut names = Names::new(&table.level);
    let span = cursor.object(|cursor, key| {
        let part = names.note(key.name)?.and_then(|position| table.part(position));
        let value = match part.and_then(Part::inside) {
            Some(inside) if cursor.peek() == Some(b'{') => walk(cursor, inside, spans)?,
            _ => cursor.skip()?,
        };
        if let Some(part) = part {
            spans.set(part, value);
        }
        Ok::<(), MessageError>(())
    })?;
    names.finish()?;
    Ok(span)
}

/// The method, if it must be stored apart from the body because it has escapes there.
fn method(text: &str, spans: &Spans) -> Result<Option<Box<str>>, MessageError> {
    let Some(span) = spans.get(Part::Method) else { return Ok(None) };
    let method = text.get(span.range()).and_then(json::string).ok_or(MessageError::BadMethod)?;
    Ok(match method {
        std::borrow::Cow::Borrowed(_) => None,
        std::borrow::Cow::Owned(method) => Some(method.into()),
    })
}

fn kind(text: &str, spans: &Spans) -> Result<Kind, MessageError> {
    // Compared unescaped: `"2\u002e0"` is the same version to every parser.
    if spans.text(text, Part::Jsonrpc).and_then(json::string).as_deref() != Some("2.0") {
        return Err(MessageError::Version);
    }
    let id = spans.text(text, Part::Id);
    if id.is_some_and(|id| !is_id(id.as_bytes())) {
        return Err(MessageError::BadId);
    }
    let has = |part| spans.get(part).is_some();
    // Some peers write `"error":null` beside a result, and the other way round.
    let holds = |part| spans.text(text, part).is_some();
    if has(Part::Method) {
        if has(Part::Result) || has(Part::Error) {
            return Err(MessageError::NoKind);
        }
        return Ok(if id.is_some() { Kind::Request } else { Kind::Notification });
    }
    match (has(Part::Result), holds(Part::Error)) {
        (true, true) if holds(Part::Result) => Err(MessageError::NoKind),
        (_, true) => Ok(Kind::Error),
        (true, false) if id.is_none() => Err(MessageError::NoId),
        (true, false) => Ok(Kind::Response),
        (false, false) => Err(MessageError::NoKind),
    }
}
