//! The lists that clients request, cut into pages whose elements are written once.

use std::collections::BTreeMap;
use std::sync::Arc;

use skep_mcp::Raw;
use skep_mcp::list::List;

use crate::aggregate::View;
use crate::composite::CompositeTools;

/// How many elements a page has.
pub const PAGE: usize = 1000;

/// The size of an element beside its strings, here and among the routes, in bytes.
const PLACE: usize = 160;

/// The lists of a view.
#[derive(Debug, Default)]
pub struct Pages {
    tools: Listed,
    prompts: Listed,
    resources: Listed,
    templates: Listed,
}

/// One list: its elements in the order of their keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listed {
    keys: Vec<Box<str>>,
    elements: Vec<Arc<str>>,
    /// The elements of the first page, written one after the other.
    first: String,
}

// === impl Pages ===

impl Pages {
    pub(super) fn of(view: &View, composite: &CompositeTools) -> Self {
        let visible = view.tools.iter().filter(|(_, tool)| !tool.is_hidden);
        let mut tools: BTreeMap<&str, Arc<str>> =
            visible.map(|(name, tool)| (&**name, tool.route.shown.clone())).collect();
        tools.extend(composite.shown(view));
        let tools = Listed::new(tools.into_iter());
        let of = |routes: &BTreeMap<Box<str>, crate::aggregate::Route>| {
            Listed::new(routes.iter().map(|(key, route)| (&**key, route.shown.clone())))
        };
        Self { tools, prompts: of(&view.prompts), resources: of(&view.resources), templates: of(&view.templates) }
    }

    /// A list.
    pub fn list(&self, list: List) -> &Listed {
        match list {
            List::Tools => &self.tools,
            List::Prompts => &self.prompts,
            List::Resources => &self.resources,
            List::ResourceTemplates => &self.templates,
        }
    }

    /// How many bytes they have in memory, with the routes to what they list.
    pub(super) fn size(&self) -> usize {
        [&self.tools, &self.prompts, &self.resources, &self.templates].into_iter().map(Listed::size).sum()
    }

    /// Whether a list has no elements.
    pub fn is_empty(&self, list: List) -> bool {
        self.list(list).keys.is_empty()
    }
}

// === impl Listed ===

impl Listed {
    fn new<'a>(elements: impl Iterator<Item = (&'a str, Arc<str>)>) -> Self {
        let (keys, elements): (Vec<Box<str>>, Vec<Arc<str>>) =
            elements.map(|(key, element)| (Box::from(key), element)).unzip();
        let first = written(elements.get(..PAGE.min(elements.len())).unwrap_or_default());
        Self { keys, elements, first }
    }

    fn size(&self) -> usize {
        // The key is that of a route as well, beside what the backend calls it.
        let listed = |(key, element): (&str, &Arc<str>)| element.len() + 3 * key.len() + PLACE;
        self.first.len() + self.iter().map(listed).sum::<usize>()
    }

    /// The result of a request for the elements behind a key; for the first page, behind none. `seal` makes the cursor that the next page
    /// is requested by, `members` stands beside the list.
    pub fn page(
        &self,
        list: List,
        after: Option<&str>,
        seal: impl FnOnce(&str) -> String,
        members: &str,
    ) -> Option<Raw<'static>> {
        let start = after.map_or(0, |after| self.keys.partition_point(|key| **key <= *after));
        let end = (start + PAGE).min(self.keys.len());
        let later;
        let elements = if start == 0 {
            &self.first
        } else {
            later = written(self.elements.get(start..end)?);
            &later
        };
        let next = self.keys.get(end).and_then(|_| self.keys.get(end.checked_sub(1)?)).map(|last| seal(last));
        let next = next.map(|next| format!(r#","nextCursor":{}"#, Raw::string(&next).as_str())).unwrap_or_default();
        Some(Raw::trusted(format!(r#"{{"{}":[{elements}]{next}{members}}}"#, list.key())))
    }

    /// Whether there is an element of a key.
    pub fn contains(&self, key: &str) -> bool {
        self.keys.binary_search_by(|known| (**known).cmp(key)).is_ok()
    }

    /// The elements with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<str>)> {
        self.keys.iter().map(|key| &**key).zip(&self.elements)
    }
}

fn written(elements: &[Arc<str>]) -> String {
    let mut text = String::with_capacity(elements.iter().map(|element| element.len() + 1).sum());
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(element);
    }
    text
}
