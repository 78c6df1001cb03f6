//! Editing members of a message and nothing else.
//!
//! An edit names a member by its path and sets or removes it. Every byte outside the edited members stays unchanged.
//! Where only parts with kept positions are replaced, such as the id, nothing is parsed again.

use std::collections::BTreeMap;

use crate::json::{Cursor, Span};
use crate::message::{Message, Part};
use crate::message_error::MessageError;
use crate::patch::{Patches, Sequence};
use crate::raw::Raw;

/// One edit of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    path: &'a [&'a str],
    value: Option<Raw<'a>>,
}

/// A message could not be edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// Two edits change the same member, or one changes a member inside the other's; or a path is empty.
    #[error("two edits conflict at `{path}`")]
    Conflict {
        /// The path of the later edit.
        path: String,
    },
    /// A path leads through a value that has no members.
    #[error("`{name}` is not an object, so it can have no members")]
    NotAnObject {
        /// The name of the value.
        name: String,
    },
    /// The edited text is not a valid message.
    #[error("after the edit: {0}")]
    Malformed(#[from] MessageError),
}

/// What happens to a member.
#[derive(Debug)]
enum Change<'a> {
    Set(&'a str),
    Remove,
    Inside(Changes<'a>),
}

type Changes<'a> = BTreeMap<&'a str, Change<'a>>;

/// Applies edits, all at once. Missing objects on a path are added.
pub fn apply(message: &Message, edits: &[Edit<'_>]) -> Result<Message, SpliceError> {
    if let Some(changed) = replace_leaves(message, edits) {
        return Ok(changed);
    }
    let text = message.whole();
    let mut patches = Patches::default();
    walk(&mut Cursor::new(text)?, &changes(edits)?, &mut patches)?;
    Ok(Message::parse(patches.apply(text.as_bytes()))?)
}

// === impl Edit ===

impl<'a> Edit<'a> {
    /// Replaces the member, or adds it as the last one of its object.
    pub fn set(path: &'a [&'a str], value: impl Into<Raw<'a>>) -> Self {
        Self { path, value: Some(value.into()) }
    }

    /// Removes the member, if there is one.
    pub fn remove(path: &'a [&'a str]) -> Self {
        Self { path, value: None }
    }
}

// === impl Change ===

impl Change<'_> {
    /// The value of a member that does not exist yet. `None` if there is only something to remove.
    fn render(&self) -> Option<String> {
        match self {
            Self::Set(value) => Some((*value).to_owned()),
            Self::Remove => None,
            Self::Inside(changes) => {
                members(changes.iter().map(|(name, change)| (*name, change))).map(|members| format!("{{{members}}}"))
            }
        }
    }
}

/// Replaces parts with kept positions. `None` if that does not suffice.
fn replace_leaves(message: &Message, edits: &[Edit<'_>]) -> Option<Message> {
    let mut patches = Patches::default();
    let mut replaced = 0_u32;
    for edit in edits {
        let part = Part::at(edit.path).filter(|part| part.is_leaf())?;
        let value = edit.value.as_ref()?;
        let stays_what_it_is = part != Part::Id || crate::id::is_id(value.as_str().as_bytes());
        let twice = replaced & (1 << part as u32) != 0;
        // A `null` id counts as missing.
        let span = message.head().span(part).filter(|_| part != Part::Id || message.id().is_some())?;
        if twice || !stays_what_it_is {
            return None;
        }
        replaced |= 1 << part as u32;
        patches.replace(span, value.as_str());
    }
    let head = message.head().shifted(&patches);
    Some(Message::assembled(patches.apply(message.body()), head))
}

/// Groups edits by the objects they are in.
fn changes<'a>(edits: &'a [Edit<'a>]) -> Result<Changes<'a>, SpliceError> {
    let mut all = Changes::new();
    for edit in edits {
        let conflict = || SpliceError::Conflict { path: edit.path.join(".") };
        let (name, parents) = edit.path.split_last().ok_or_else(conflict)?;
        let mut here = &mut all;
        for parent in parents {
            match here.entry(parent).or_insert_with(|| Change::Inside(Changes::new())) {
                Change::Inside(inside) => here = inside,
                _ => return Err(conflict()),
            }
        }
        let change = edit.value.as_ref().map_or(Change::Remove, |value| Change::Set(value.as_str()));
        if here.insert(name, change).is_some() {
            return Err(conflict());
        }
    }
    Ok(all)
}

/// Walks an object that has edits. The depth is that of the longest path.
fn walk<'a>(cursor: &mut Cursor<'_>, changes: &Changes<'a>, patches: &mut Patches<'a>) -> Result<Span, SpliceError> {
    let mut missing: BTreeMap<&str, &Change<'a>> = changes.iter().map(|(name, change)| (*name, change)).collect();
    let mut sequence = Sequence::new(cursor.position() + 1);
    let span = cursor.object(|cursor, key| {
        let change = missing.remove(key.name.as_ref());
        let opens = cursor.peek() == Some(b'{');
        let value = match change {
            Some(Change::Inside(inside)) if opens => walk(cursor, inside, patches)?,
            _ => cursor.skip()?,
        };
        match change {
            Some(Change::Set(text)) => patches.replace(value, *text),
            Some(inside @ Change::Inside(_)) if !opens => {
                // A value without members has nothing to remove.
                if let Some(object) = inside.render() {
                    if cursor.text(value) != "null" {
                        return Err(SpliceError::NotAnObject { name: key.name.into_owned() });
                    }
                    patches.replace(value, object);
                }
            }
            _ => {}
        }
        let member = Span::new(key.start, value.end());
        match change {
            Some(Change::Remove) => sequence.drop(member, patches),
            _ => sequence.keep(member, patches),
        }
        Ok(())
    })?;
    sequence.finish(members(missing.into_iter()), patches);
    Ok(span)
}

/// The members to add, separated by commas.
fn members<'c>(changes: impl Iterator<Item = (&'c str, &'c Change<'c>)>) -> Option<String> {
    let members: Vec<String> = changes
        .filter_map(|(name, change)| Some(format!("{}:{}", Raw::string(name).as_str(), change.render()?)))
        .collect();
    (!members.is_empty()).then(|| members.join(","))
}

#[cfg(test)]
mod tests;
