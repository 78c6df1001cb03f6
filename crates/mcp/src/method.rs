//! The methods of the protocol: who sends them, in which era, and what a message of each is about.
//!
//! All of it is one table ([`Method::ALL`]). Methods that it does not list are passed on like any other; nothing is
//! known of what they are about.

mod resource;
mod table;

use std::borrow::Cow;

use crate::era::Era;
use crate::message::{Message, Part};
use table::TABLE;

/// A method that the protocol defines.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// What messages call it.
    pub name: &'static str,
    /// Who sends it.
    pub from: Side,
    /// Whether it wants an answer.
    pub form: Form,
    /// When it is sent, as a message of its own.
    pub eras: Eras,
    resource: Resource,
    arguments: Arguments,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
    /// Either.
    Both,
}

/// Whether a method wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It does.
    Request,
    /// It does not.
    Notification,
}

/// The eras that have a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eras {
    /// Up to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
    /// Both.
    Both,
}

/// Where a message says what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    /// It does not.
    Nowhere,
    /// It is always about the same.
    Fixed(&'static str),
    /// The first of these paths in `params` that ends in a text.
    Text(&'static [&'static [&'static str]]),
    /// A member of `params` that is a text or a number. A number keeps its digits.
    TextOrNumber(&'static str),
    /// The model that is asked for, or else how the prompt begins.
    Sampling,
}

/// Where a message has what a policy may look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arguments {
    /// Nowhere.
    None,
    /// `params.arguments`.
    Member,
    /// All of `params`.
    Params,
}

/// What a message is about: the name of a tool or prompt, the URI of a resource, and so on. Nothing if it does not say,
/// or says the empty text.
pub fn resource(message: &Message) -> Option<Cow<'_, str>> {
    let method = Method::of(message)?;
    resource::find(method.resource, message).filter(|resource| !resource.is_empty())
}

/// The arguments of a message: a JSON object. Nothing if there are none.
pub fn arguments(message: &Message) -> Option<&[u8]> {
    let arguments = match Method::of(message)?.arguments {
        Arguments::None => None,
        Arguments::Member => message.value(Part::Arguments),
        Arguments::Params => message.params(),
    };
    arguments.filter(|arguments| arguments.first() == Some(&b'{'))
}

// === impl Method ===

impl Method {
    /// Every method, sorted by name.
    pub const ALL: &'static [Self] = TABLE;

    /// The method of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        let position = TABLE.binary_search_by(|method| method.name.cmp(name)).ok()?;
        TABLE.get(position)
    }

    /// The method of a request or notification.
    pub fn of(message: &Message) -> Option<&'static Self> {
        message.method().and_then(Self::named)
    }

    /// Whether the method is one of this era.
    pub fn is_of(&self, era: Era) -> bool {
        match self.eras {
            Eras::Both => true,
            Eras::Legacy => era == Era::Legacy,
            Eras::Modern => era == Era::Modern,
        }
    }
}

#[cfg(test)]
mod tests;
