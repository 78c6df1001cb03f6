//! Lists of what a server has: who may see what, and under which name.
//!
//! A filter or a renaming looks at each element and says what becomes of it. Elements that stay, and everything else in
//! the result (`nextCursor`, `_meta`, what nobody here knows), keep their bytes.

use std::borrow::Cow;

use bytes::Bytes;

use crate::json::{Cursor, Span, string};
use crate::malformed::Malformed;
use crate::message::{Kind, Message, Part};
use crate::names::{Level, Names};
use crate::patch::{Patches, Sequence};
use crate::raw::Raw;

/// A list that a server can be asked for.
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
    /// All of it.
    pub raw: &'a str,
    /// What clients call it by: the `name` of a tool or prompt, the `uri` of a resource, the `uriTemplate` of a
    /// template.
    pub name: Cow<'a, str>,
    /// What it says of itself.
    pub description: Option<Cow<'a, str>>,
    /// Hints on what it does, as JSON.
    pub annotations: Option<&'a str>,
}

/// What becomes of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Keep,
    /// It goes.
    Drop,
    /// It stays, with other members.
    Change(Change),
}

/// Members that are to be other ones. Those that are missing are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What clients call it by.
    pub name: Option<String>,
    /// What it says of itself.
    pub description: Option<String>,
    /// Hints on what it does.
    pub annotations: Option<Raw<'static>>,
}

/// Where the members of an element are: its name, description and annotations.
type Members = [Option<Span>; 3];

/// Asks for a verdict on every element of the list in a response. Nothing if the response stays as it is, as one does
/// that has no such list.
///
/// A list that cannot be judged is an error, never a list that was let through: elements that are no objects, that have
/// no name, or whose name could be read in two ways.
pub fn rewrite(
    message: &Message,
    list: List,
    mut judge: impl FnMut(&Element<'_>) -> Verdict,
) -> Result<Option<Bytes>, Malformed> {
    let Some(result) = message.head().span(Part::Result).filter(|_| message.kind() == Kind::Response) else {
        return Ok(None);
    };
    let text = message.whole();
    let mut patches = Patches::default();
    let mut cursor = Cursor::starting(text, result.start())?;
    if cursor.peek() != Some(b'{') {
        return Ok(None);
    }
    let mut names = Names::new(list.result());
    cursor.object(|cursor, key| {
        let found = names.note(key.name)?.is_some();
        if found && cursor.peek() == Some(b'[') {
            return elements(cursor, list, &mut patches, &mut judge);
        }
        let value = cursor.skip()?;
        if found && cursor.text(value) != "null" {
            return Err(Malformed::NotAList { key: list.key() });
        }
        Ok(())
    })?;
    names.finish()?;
    Ok((!patches.is_empty()).then(|| patches.apply(text.as_bytes())))
}

// === impl List ===

impl List {
    /// The method that asks for it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
        }
    }

    /// The list that a method asks for.
    pub fn of(method: &str) -> Option<Self> {
        let all = [Self::Tools, Self::Prompts, Self::Resources, Self::ResourceTemplates];
        all.into_iter().find(|list| list.method() == method)
    }

    /// The member of the result that is the list.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// The names that mean something in a result.
    fn result(self) -> &'static Level {
        match self {
            Self::Tools => &Level { place: "`result`", known: &["tools"] },
            Self::Prompts => &Level { place: "`result`", known: &["prompts"] },
            Self::Resources => &Level { place: "`result`", known: &["resources"] },
            Self::ResourceTemplates => &Level { place: "`result`", known: &["resourceTemplates"] },
        }
    }

    /// The names that mean something in an element, in the order of [`Members`].
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
fn elements(
    cursor: &mut Cursor<'_>,
    list: List,
    patches: &mut Patches<'_>,
    judge: &mut impl FnMut(&Element<'_>) -> Verdict,
) -> Result<(), Malformed> {
    let mut sequence = Sequence::new(cursor.position() + 1);
    cursor.array(|cursor| {
        let (span, members) = element(cursor, list)?;
        let [name, description, annotations] = members.map(|member| member.map(|member| cursor.text(member)));
        let key = list.key();
        let nameless = || Malformed::Nameless { key, name: list.element().known.first().copied().unwrap_or_default() };
        let name = name.and_then(string).filter(|name| !name.is_empty()).ok_or_else(nameless)?;
        let description = description.and_then(string);
        match judge(&Element { raw: cursor.text(span), name, description, annotations }) {
            Verdict::Keep => sequence.keep(span, patches),
            Verdict::Drop => sequence.drop(span, patches),
            Verdict::Change(change) => {
                sequence.keep(span, patches);
                alter(cursor, list, members, change, patches);
            }
        }
        Ok::<(), Malformed>(())
    })?;
    sequence.finish(None, patches);
    Ok(())
}

/// Steps over an element and says where its members are.
fn element(cursor: &mut Cursor<'_>, list: List) -> Result<(Span, Members), Malformed> {
    if cursor.peek() != Some(b'{') {
        return Err(Malformed::NotAList { key: list.key() });
    }
    let mut members = Members::default();
    let mut names = Names::new(list.element());
    let span = cursor.object(|cursor, key| {
        let position = names.note(key.name)?;
        let value = cursor.skip()?;
        if let Some(member) = position.and_then(|position| members.get_mut(position)) {
            *member = Some(value);
        }
        Ok::<(), Malformed>(())
    })?;
    names.finish()?;
    Ok((span, members))
}

/// Replaces members of an element. What is missing is added behind the name, which is never missing.
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
