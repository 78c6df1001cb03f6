//! What one backend offers: its tools, prompts, resources and templates, as it lists them.

mod bounded;
mod fetch;
mod shared;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use bounded::{Bounded, Limits, Owner, owner_of};
pub(crate) use fetch::meta;
pub use fetch::{FetchError, fetch, fetch_within};
pub(crate) use shared::{Catalogues, Digest};
use skep_mcp::list::{Element, List};

/// What one backend offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    /// Its tools.
    pub tools: Vec<Item>,
    /// Its prompts.
    pub prompts: Vec<Item>,
    /// Its resources.
    pub resources: Vec<Item>,
    /// Templates of its resources.
    pub templates: Vec<Item>,
    /// What it can do beside that.
    pub abilities: Abilities,
    /// For how long it says that this holds, if it says so.
    pub time_to_live: Option<Duration>,
    /// The lists that could not be fetched, and are those from before.
    pub stale: Vec<List>,
}

/// A tool, prompt, resource or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name, or its URI.
    pub name: Box<str>,
    /// It as JSON.
    pub raw: Arc<str>,
}

/// What a backend can do beside offering things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "these are the members of the protocol's capabilities")]
pub struct Abilities {
    /// It has tools.
    pub tools: bool,
    /// It has prompts.
    pub prompts: bool,
    /// It has resources.
    pub resources: bool,
    /// It reports changes of single resources.
    pub subscriptions: bool,
    /// It completes arguments.
    pub completions: bool,
}

// === impl Item ===

impl Item {
    /// An element of a list. None if it has no name.
    pub fn parse(list: List, raw: &str) -> Option<Self> {
        let element = Element::parse(list, raw).ok()?;
        Some(Self { name: element.name.as_ref().into(), raw: raw.into() })
    }
}

// === impl Catalogue ===

impl Catalogue {
    /// The items of a list.
    pub fn items(&self, list: List) -> &[Item] {
        match list {
            List::Tools => &self.tools,
            List::Prompts => &self.prompts,
            List::Resources => &self.resources,
            List::ResourceTemplates => &self.templates,
        }
    }

    /// Whether it has nothing at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.prompts.is_empty() && self.resources.is_empty() && self.templates.is_empty()
    }

    /// The same with the lists that could not be fetched as they were before.
    #[must_use]
    pub(crate) fn completed(mut self, before: &Self) -> Self {
        for list in self.stale.clone() {
            self.items_mut(list).clone_from(&before.items(list).to_vec());
        }
        self
    }

    /// The items of a list, to be changed.
    pub(crate) fn items_mut(&mut self, list: List) -> &mut Vec<Item> {
        match list {
            List::Tools => &mut self.tools,
            List::Prompts => &mut self.prompts,
            List::Resources => &mut self.resources,
            List::ResourceTemplates => &mut self.templates,
        }
    }
}
