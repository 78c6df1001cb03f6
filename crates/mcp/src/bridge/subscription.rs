//! `subscriptions/listen` of 2026-07-28, and the notifications that legacy sessions get instead.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::SUBSCRIPTION;
use crate::id::Id;
use crate::json::{self, Cursor};
use crate::message::Message;
use crate::message_error::MessageError;
use crate::names::{Level, Names};
use crate::raw::Raw;
use crate::splice::{Edit, SpliceError};
use crate::{splice, value};

/// Which notifications a client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// That the tools changed.
    pub tools: bool,
    /// That the prompts changed.
    pub prompts: bool,
    /// That the list of resources changed.
    pub resources: bool,
    /// That these resources changed.
    pub uris: BTreeSet<String>,
}

/// Why a filter is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is none.
    #[error("`params.notifications` must be an object")]
    NotAnObject,
    /// Two parsers could read two filters.
    #[error("the names in `params.notifications` must be unique, and written as the protocol writes them")]
    Ambiguous,
    /// The resources are not a list of URIs.
    #[error(
        "`params.notifications.resourceSubscriptions` must be a list of at most {most} URIs of at most {longest} bytes"
    )]
    Uris {
        /// How many there may be.
        most: usize,
        /// How long each may be.
        longest: usize,
    },
}

/// How many resources one request may subscribe to, and how long the name of each may be, in bytes.
const MOST: usize = 1000;
const LONGEST: usize = 8 * 1024;

static LEVEL: Level = Level {
    place: "`params.notifications`",
    known: &["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"],
};

/// The filter of all lists.
const LISTS: [(&str, &str); 3] =
    [("toolsListChanged", "tools"), ("promptsListChanged", "prompts"), ("resourcesListChanged", "resources")];

// === impl Filter ===

impl Filter {
    /// Every list, and these resources.
    pub fn all(uris: BTreeSet<String>) -> Self {
        Self { tools: true, prompts: true, resources: true, uris }
    }

    /// What a `subscriptions/listen` asks for, or what its acknowledgement grants.
    pub fn of(message: &Message) -> Result<Self, FilterError> {
        let filter = super::member(message.params(), "notifications").filter(|filter| filter.starts_with('{'));
        let filter = filter.ok_or(FilterError::NotAnObject)?;
        unambiguous(filter).map_err(|_malformed| FilterError::Ambiguous)?;
        let has = |name: &str| value::find(filter.as_bytes(), &[name]) == Some("true");
        let [tools, prompts, resources] = LISTS.map(|(name, _)| has(name));
        let uris = match value::find(filter.as_bytes(), &["resourceSubscriptions"]) {
            None | Some("null") => BTreeSet::new(),
            Some(list) => uris(list).ok_or(FilterError::Uris { most: MOST, longest: LONGEST })?,
        };
        Ok(Self { tools, prompts, resources, uris })
    }

    /// The same as JSON. What is not wanted is left out.
    pub fn to_json(&self) -> Raw<'static> {
        let wanted = LISTS.iter().zip(self.lists()).filter(|(_, wanted)| *wanted);
        let mut filter: Map<String, Value> = wanted.map(|((name, _), _)| ((*name).to_owned(), true.into())).collect();
        if !self.uris.is_empty() {
            filter.insert("resourceSubscriptions".to_owned(), self.uris.iter().map(String::as_str).collect::<Value>());
        }
        Raw::value(&Value::Object(filter))
    }

    /// What a legacy server can grant of it, by its response to `initialize`.
    #[must_use]
    pub fn granted_by(mut self, initialized: &Message) -> Self {
        let result = initialized.result().unwrap_or_default();
        let can = |name: &str, what: &str| value::find(result, &["capabilities", name, what]) == Some("true");
        let [tools, prompts, resources] = LISTS.map(|(_, name)| can(name, "listChanged"));
        (self.tools, self.prompts, self.resources) =
            (self.tools && tools, self.prompts && prompts, self.resources && resources);
        if !can("resources", "subscribe") {
            self.uris.clear();
        }
        self
    }

    /// Whether it is about nothing.
    pub fn is_empty(&self) -> bool {
        !self.lists().contains(&true) && self.uris.is_empty()
    }

    /// Whether a notification is wanted.
    pub fn wants(&self, notification: &Message) -> bool {
        match notification.method() {
            Some("notifications/tools/list_changed") => self.tools,
            Some("notifications/prompts/list_changed") => self.prompts,
            Some("notifications/resources/list_changed") => self.resources,
            Some("notifications/resources/updated") => {
                let uri = notification.params().and_then(|params| value::find_text(params, &["uri"]));
                uri.is_some_and(|uri| self.uris.contains(uri.as_ref()))
            }
            _ => false,
        }
    }

    fn lists(&self) -> [bool; 3] {
        [self.tools, self.prompts, self.resources]
    }
}

/// The first message of a subscription: what is granted of it.
pub fn acknowledged(id: &Id, granted: &Filter) -> Bytes {
    let (id, granted) = (id.raw(), granted.to_json());
    let params = format!(r#"{{"_meta":{{"{SUBSCRIPTION}":{id}}},"notifications":{}}}"#, granted.as_str());
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{params}}}"#).into()
}

/// The response to a subscription that the server ends.
pub fn ended(id: &Id) -> Bytes {
    let id = id.raw();
    let result = format!(r#"{{"_meta":{{"{SUBSCRIPTION}":{id}}},"resultType":"complete"}}"#);
    format!(r#"{{"id":{id},"jsonrpc":"2.0","result":{result}}}"#).into()
}

/// A notification of a legacy server as one of a subscription.
pub fn of_subscription(notification: &Message, id: &Id) -> Result<Bytes, SpliceError> {
    splice::apply(notification, &[Edit::set(&["params", "_meta", SUBSCRIPTION], id)]).map(Message::into_body)
}

/// Rejects a filter of which two parsers could read two lists of resources: what is authorized is what the server reads.
fn unambiguous(filter: &str) -> Result<(), MessageError> {
    let mut names = Names::new(&LEVEL);
    Cursor::new(filter)?.object(|cursor, key| {
        names.note(key.name)?;
        cursor.skip().map(drop)
    })?;
    names.finish()
}

/// The texts of a list, if it is one and not too long.
fn uris(list: &str) -> Option<BTreeSet<String>> {
    let mut cursor = Cursor::new(list).ok()?;
    let mut uris = BTreeSet::new();
    let walked: Result<_, MessageError> = cursor.array(|cursor| {
        let value = cursor.skip()?;
        let uri = json::string(cursor.text(value)).filter(|uri| !uri.is_empty() && uri.len() <= LONGEST);
        let uri = uri.filter(|_| uris.len() < MOST).ok_or(MessageError::NotAnObject)?;
        uris.insert(uri.into_owned());
        Ok(())
    });
    walked.ok().map(|_| uris)
}
