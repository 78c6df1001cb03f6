//! The lists that clients request, cut into pages whose elements are written once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use skep_mcp::Raw;
use skep_mcp::list::List;

use crate::aggregate::{BackendName, Route, View};

/// How many elements a page has.
pub const PAGE: usize = 1000;

/// The size of an element beside its strings, here and among the routes, in bytes.
const PLACE: usize = 224;

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
    /// The pages of a view without what these backends offer, and with these tools beside it.
    pub(super) fn of<'a>(
        view: &'a View,
        unavailable: &BTreeSet<BackendName>,
        composed: impl Iterator<Item = (&'a str, Arc<str>)>,
    ) -> Self {
        let is_listed = |route: &Route| !unavailable.contains(&route.backend);
        let visible = view.tools.iter().filter(|(_, tool)| !tool.is_hidden && is_listed(&tool.route));
        let mut tools: BTreeMap<&str, Arc<str>> =
            visible.map(|(name, tool)| (&**name, tool.route.shown.clone())).collect();
        tools.extend(composed);
        let tools = Listed::new(tools.into_iter());
        let of = |routes: &BTreeMap<Box<str>, Route>| {
            let listed = routes.iter().filter(|(_, route)| is_listed(route));
            Listed::new(listed.map(|(key, route)| (&**key, route.shown.clone())))
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
        // The key is that of a route as well, and both stand beside what the backend calls it.
        let listed = |(key, element): (&str, &Arc<str>)| element.len() + 5 * key.len() + PLACE;
        self.first.len() + self.iter().map(listed).sum::<usize>()
    }

    /// The result of a request for the elements behind a key; for the first page, behind none. `seal` makes the cursor that the next page
    /// is requested by, `members` stands beside the list.
    pub fn page(
        &self,
        list: List,
        after: Option<&str>,
        seal: impl FnOnce(&str) -> Option<String>,
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
        let final_key = self.keys.get(end).and_then(|_| self.keys.get(end.checked_sub(1)?));
        let next = match final_key {
            Some(key) => format!(r#","nextCursor":{}"#, Raw::string(&seal(key)?).as_str()),
            None => String::new(),
        };
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::view::Cursors;

    fn listed(names: impl Iterator<Item = usize>) -> Listed {
        let names: Vec<String> = names.map(|number| format!("tool-{number:05}")).collect();
        let element = |name: &String| Arc::from(format!(r#"{{"name":"{name}"}}"#));
        Listed::new(names.iter().map(|name| (name.as_str(), element(name))))
    }

    /// The names of a page, and what opens the next one.
    fn page(listed: &Listed, after: Option<&str>) -> (Vec<String>, Option<String>) {
        let cursors = Cursors::new(b"key");
        let page = listed.page(List::Tools, after, |last| cursors.seal(List::Tools, last), "").unwrap();
        let page: Value = serde_json::from_str(page.as_str()).unwrap();
        let names = page["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        let next = page["nextCursor"].as_str().map(|next| cursors.open(List::Tools, next).unwrap());
        (names.collect(), next)
    }

    #[test]
    fn every_element_is_on_one_page_and_the_last_one_has_no_cursor() {
        for (count, sizes) in [
            (0, &[0][..]),
            (1, &[1]),
            (999, &[999]),
            (1000, &[1000]),
            (1001, &[1000, 1]),
            (2000, &[1000, 1000]),
            (2001, &[1000, 1000, 1]),
        ] {
            let listed = listed(0..count);
            let (mut seen, mut found, mut after) = (Vec::new(), Vec::new(), None);
            loop {
                let (names, next) = page(&listed, after.as_deref());
                found.push(names.len());
                seen.extend(names);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, sizes, "{count}");
            assert_eq!(seen, (0..count).map(|number| format!("tool-{number:05}")).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_stays_is_sent_once_whatever_goes_between_two_pages() {
        let (first, next) = page(&listed(0..2001), None);
        assert_eq!((first.len(), next.as_deref()), (1000, Some("tool-00999")));
        // The element of the cursor is gone, and so are those around it.
        let fewer = listed((0..2001).filter(|number| !(990..1010).contains(number)));
        let (second, next) = page(&fewer, next.as_deref());
        assert_eq!((second.len(), second[0].as_str(), next), (991, "tool-01010", None));
        // All behind the cursor is gone.
        assert_eq!(page(&listed(0..500), Some("tool-00999")), (Vec::new(), None));
        // What is new behind the cursor is sent.
        let (rest, next) = page(&listed(0..2002), Some("tool-01999"));
        assert_eq!((rest.len(), next), (2, None));
    }
}
