//! The lists in a server's responses: filtering and renaming their elements.
//!
//! A filter or a renaming returns a verdict for each element. Elements that stay, and everything else in the result
//! (`nextCursor`, `_meta`, unknown members), keep their bytes.

use std::borrow::Cow;

use bytes::Bytes;

use crate::json::{Cursor, Span, string};
use crate::message::{Kind, Message, Part};
use crate::message_error::MessageError;
use crate::names::{Level, Names};
use crate::patch::{Patches, Sequence};
use crate::raw::Raw;

/// A list that a client can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum List {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    ResourceTemplates,
}

/// An element of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    /// Its JSON text.
    pub raw: &'a str,
    /// Its key for clients: the `name` of a tool or prompt, the `uri` of a resource, the `uriTemplate` of a template.
    pub name: Cow<'a, str>,
    /// Its description.
    pub description: Option<Cow<'a, str>>,
    /// Its annotations (behaviour hints), as JSON.
    pub annotations: Option<&'a str>,
}

/// What happens to an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays unchanged.
    Keep,
    /// It is removed.
    Drop,
    /// It stays with changed members.
    Change(Change),
}

/// Members to replace. Missing ones are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its key for clients.
    pub name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Its annotations.
    pub annotations: Option<Raw<'static>>,
}

/// The positions of an element's name, description and annotations.
type Members = [Option<Span>; 3];

/// Asks for a verdict on every element of the list in a response. `None` if the response stays unchanged, as it does
/// when it has no such list.
///
/// A list that cannot be evaluated is an error and is never passed through: a result that is not an object, elements
/// that are not objects, have no name, or have an ambiguous name.
pub fn rewrite(
    message: &Message,
    list: List,
    mut verdict: impl FnMut(&Element<'_>) -> Verdict,
) -> Result<Option<Bytes>, MessageError> {
    let Some(result) = message.head().span(Part::Result).filter(|_| message.kind() == Kind::Response) else {
        return Ok(None);
    };
    let text = message.whole();
    let mut patches = Patches::default();
    let mut cursor = Cursor::starting(text, result.start())?;
    if cursor.peek() != Some(b'{') {
        // A lenient client may find a list in whatever else it is.
        let is_null = message.text(Part::Result) == Some("null");
        return if is_null { Ok(None) } else { Err(MessageError::ResultNotAnObject) };
    }
    let mut names = Names::new(list.result());
    cursor.object(|cursor, key| {
        let found = names.note(key.name)?.is_some();
        if found && cursor.peek() == Some(b'[') {
            return each(cursor, list, &mut patches, &mut verdict);
        }
        let value = cursor.skip()?;
        if found && cursor.text(value) != "null" {
            return Err(MessageError::NotAList { key: list.key() });
        }
        Ok(())
    })?;
    names.finish()?;
    Ok((!patches.is_empty()).then(|| patches.apply(text.as_bytes())))
}

/// The elements of the list in a response, as they are. None if it has no such list.
pub fn elements(message: &Message, list: List) -> Result<Vec<String>, MessageError> {
    let mut found = Vec::new();
    rewrite(message, list, |element| {
        found.push(element.raw.to_owned());
        Verdict::Keep
    })?;
    Ok(found)
}

// === impl Element ===

impl<'a> Element<'a> {
    /// Reads one element of a list by itself.
    pub fn parse(list: List, raw: &'a str) -> Result<Self, MessageError> {
        let mut cursor = Cursor::new(raw)?;
        let (span, members) = element(&mut cursor, list)?;
        cursor.end()?;
        Self::of(&cursor, list, span, members)
    }

    /// The same element with changed members.
    pub fn changed(&self, list: List, change: Change) -> Result<String, MessageError> {
        let mut cursor = Cursor::new(self.raw)?;
        let (_span, members) = element(&mut cursor, list)?;
        let mut patches = Patches::default();
        alter(&cursor, list, members, change, &mut patches);
        let changed = patches.apply(self.raw.as_bytes());
        String::from_utf8(changed.into()).map_err(|_| MessageError::NotUtf8)
    }

    fn of(cursor: &Cursor<'a>, list: List, span: Span, members: Members) -> Result<Self, MessageError> {
        let [name, description, annotations] = members.map(|member| member.map(|member| cursor.text(member)));
        let key = list.key();
        let nameless =
            || MessageError::Nameless { key, name: list.element().known.first().copied().unwrap_or_default() };
        let name = name.and_then(string).filter(|name| !name.is_empty()).ok_or_else(nameless)?;
        let description = description.and_then(string);
        Ok(Self { raw: cursor.text(span), name, description, annotations })
    }
}

// === impl List ===

impl List {
    /// The method that requests it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
        }
    }

    /// The list that a method requests.
    pub fn of(method: &str) -> Option<Self> {
        let all = [Self::Tools, Self::Prompts, Self::Resources, Self::ResourceTemplates];
        all.into_iter().find(|list| list.method() == method)
    }

    /// The member of the result that holds the list.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// The known names in a result.
    fn result(self) -> &'static Level {
        match self {
            Self::Tools => &Level { place: "`result`", known: &["tools"] },
            Self::Prompts => &Level { place: "`result`", known: &["prompts"] },
            Self::Resources => &Level { place: "`result`", known: &["resources"] },
            Self::ResourceTemplates => &Level { place: "`result`", known: &["resourceTemplates"] },
        }
    }

    /// The known names in an element, in the order of [`Members`].
    fn element(self) -> &'static Level {
        match self {
            Self::Tools | Self::Prompts => {
                &Level { place: "an element of the list", known: &["name", "description", "annotations"] }
            }
            Self::Resources => {
                &Level { place: "an element of the list", known: &["uri", "description", "annotations"] }
            }
            Self::ResourceTemplates => {
                &Level { place: "an element of the list", known: &["uriTemplate", "description", "annotations"] }
            }
        }
    }
}

/// Walks the list itself.
fn each(
    cursor: &mut Cursor<'_>,
    list: List,
    patches: &mut Patches<'_>,
    verdict: &mut impl FnMut(&Element<'_>) -> Verdict,
) -> Result<(), MessageError> {
    let mut sequence = Sequence::new(cursor.position() + 1);
    cursor.array(|cursor| {
        let (span, members) = element(cursor, list)?;
        match verdict(&Element::of(cursor, list, span, members)?) {
            Verdict::Keep => sequence.keep(span, patches),
            Verdict::Drop => sequence.drop(span, patches),
            Verdict::Change(change) => {
                sequence.keep(span, patches);
                alter(cursor, list, members, change, patches);
            }
        }
        Ok::<(), MessageError>(())
    })?;
    sequence.finish(None, patches);
    Ok(())
}

/// Skips an element and returns the positions of its members.
fn element(cursor: &mut Cursor<'_>, list: List) -> Result<(Span, Members), MessageError> {
    if cursor.peek() != Some(b'{') {
        return Err(MessageError::NotAList { key: list.key() });
    }
    let mut members = Members::default();
    let mut names = Names::new(list.element());
    let span = cursor.object(|cursor, key| {
        let position = names.note(key.name)?;
        let value = cursor.skip()?;
        if let Some(member) = position.and_then(|position| members.get_mut(position)) {
            *member = Some(value);
        }
        Ok::<(), MessageError>(())
    })?;
    names.finish()?;
    Ok((span, members))
}

/// Replaces members of an element. Missing ones are added after the name, which is always present.
fn alter(cursor: &Cursor<'_>, list: List, members: Members, change: Change, patches: &mut Patches<'_>) {
    let text = |text: String| Raw::string(&text);
    let values = [change.name.map(text), change.description.map(text), change.annotations];
    let behind = members.first().copied().flatten().map_or(0, Span::end);
    let mut added = String::new();
    for ((value, place), name) in values.into_iter().zip(members).zip(list.element().known) {
        match (value, place) {
            (Some(value), Some(place)) if cursor.text(place) != value.as_str() => {
                patches.replace(place, value.as_str().to_owned());
            }
            (Some(value), None) => added.extend([",\"", name, "\":", value.as_str()]),
            _ => {}
        }
    }
    if !added.is_empty() {
        patches.insert(behind, added);
    }
}

#[cfg(test)]
mod tests;
