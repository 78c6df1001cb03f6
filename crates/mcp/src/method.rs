//! The methods of the protocol: sender, era, and the resource that a message of each concerns.
//!
//! All of it is one table ([`Method::ALL`]). Methods that it does not list are forwarded like any other, but have no
//! known resource.

mod resource;
mod table;

use std::borrow::Cow;

use crate::era::{Era, Eras};
use crate::message::{Message, Part};
use table::TABLE;

/// A method that the protocol defines.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Its name in messages.
    pub name: &'static str,
    /// The side that sends it.
    pub from: Side,
    /// Whether it expects a response.
    pub form: Form,
    /// The eras that have it as a message of its own.
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

/// Whether a method expects a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It does: a request.
    Request,
    /// It does not: a notification.
    Notification,
}

/// Where a message names the resource that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    /// Nowhere.
    Nowhere,
    /// It is always the same resource.
    Fixed(&'static str),
    /// The first of these paths in `params` that leads to a string.
    Text(&'static [&'static [&'static str]]),
    /// A member of `params` that is a string or a number. A number keeps its digits.
    TextOrNumber(&'static str),
    /// The requested model, or else the start of the prompt.
    Sampling,
}

/// Where a message has the arguments that a policy may evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arguments {
    /// Nowhere.
    None,
    /// `params.arguments`.
    Member,
    /// All of `params`.
    Params,
}

/// The resource that a message concerns: the name of a tool or prompt, the URI of a resource, and so on. `None` if it
/// names none, or an empty string.
pub fn resource(message: &Message) -> Option<Cow<'_, str>> {
    let method = Method::of(message)?;
    resource::find(method.resource, message).filter(|resource| !resource.is_empty())
}

/// The arguments of a message: a JSON object. `None` if it has none.
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
        self.eras.contains(era)
    }
}

#[cfg(test)]
mod tests;
