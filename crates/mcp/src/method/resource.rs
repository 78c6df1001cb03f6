//! Finding the resource that a message concerns.

use std::borrow::Cow;

use super::Resource;
use crate::id::is_id;
use crate::json::{first, member, string};
use crate::message::{Message, Part};

/// How much of a prompt identifies it, in bytes.
const MOST_OF_A_PROMPT: usize = 50;

pub(super) fn find(resource: Resource, message: &Message) -> Option<Cow<'_, str>> {
    match resource {
        Resource::Nowhere => None,
        Resource::Fixed(name) => Some(Cow::Borrowed(name)),
        Resource::Text(paths) => paths.iter().find_map(|path| text(message, path)),
        Resource::TextOrNumber(name) => {
            let value = param(message, name)?;
            string(value).or_else(|| is_id(value.as_bytes()).then_some(Cow::Borrowed(value)))
        }
        Resource::Sampling => sampling(message),
    }
}

/// The string at a path in `params`.
fn text<'m>(message: &'m Message, path: &[&str]) -> Option<Cow<'m, str>> {
    let (name, inside) = path.split_first()?;
    let value = inside.iter().try_fold(param(message, name)?, |object, name| member(object, name))?;
    string(value)
}

/// The name of the model, or its first hint, or else the start of the prompt.
fn sampling(message: &Message) -> Option<Cow<'_, str>> {
    let preferences = param(message, "modelPreferences");
    let name = |object| member(object, "name").and_then(string).filter(|name| !name.is_empty());
    let hint = || preferences.and_then(|preferences| member(preferences, "hints")).and_then(first).and_then(name);
    let prompt = || param(message, "systemPrompt").and_then(string).map(beginning);
    preferences.and_then(name).or_else(hint).or_else(prompt)
}

fn beginning(prompt: Cow<'_, str>) -> Cow<'_, str> {
    let end = prompt.floor_char_boundary(MOST_OF_A_PROMPT);
    match prompt {
        Cow::Borrowed(prompt) => Cow::Borrowed(prompt.get(..end).unwrap_or_default()),
        Cow::Owned(mut prompt) => {
            prompt.truncate(end);
            Cow::Owned(prompt)
        }
    }
}

/// A member of `params`, by its kept position where there is one.
fn param<'m>(message: &'m Message, name: &str) -> Option<&'m str> {
    match Part::at(&["params", name]) {
        Some(part) => message.text(part),
        None => member(message.text(Part::Params)?, name),
    }
}
