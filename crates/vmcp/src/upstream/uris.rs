//! The URIs in the results of a backend, as clients know them: where two backends have the same URI, that of the second is shown behind a scheme that
//! names it, and must be so wherever the client meets it, or it would read the resource of the other one.
//!
//! | result | where |
//! | --- | --- |
//! | `tools/call` | `content[].uri` of links, `content[].resource.uri` |
//! | `resources/read` | `contents[].uri` |
//! | `prompts/get` | `messages[].content.uri`, `messages[].content.resource.uri` |

use serde_json::value::RawValue;
use skep_mcp::list::{Change, Element, List};
use skep_mcp::{Edit, Message, Raw, splice, value};

use crate::aggregate::View;

/// A response of a backend with the URIs that clients know. All other bytes stay as they are.
pub(super) fn shown(view: &View, backend: &str, response: Message) -> Message {
    let Some(result) = response.result() else { return response };
    let item = |raw: &str| item(view, backend, raw);
    let message = |raw: &str| member(raw, "content", item);
    let changed = ["content", "contents"].into_iter().find_map(|name| {
        let items = value::find(result, &[name])?;
        Some((["result", name], array(items, item)?))
    });
    let changed = changed.or_else(|| {
        let messages = value::find(result, &["messages"])?;
        Some((["result", "messages"], array(messages, message)?))
    });
    let Some((path, items)) = changed else { return response };
    splice::apply(&response, &[Edit::set(&path, Raw::trusted(items))]).unwrap_or(response)
}

/// A list with changed items. Nothing if none changes.
fn array(raw: &str, change: impl Fn(&str) -> Option<String>) -> Option<String> {
    let items: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
    let changed: Vec<Option<String>> = items.iter().map(|item| change(item.get())).collect();
    changed.iter().any(Option::is_some).then(|| {
        let items = items.iter().zip(changed).map(|(item, changed)| changed.unwrap_or_else(|| item.get().to_owned()));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    })
}

/// A link to a resource, its content, or what embeds it. Nothing if it stays as it is.
fn item(view: &View, backend: &str, raw: &str) -> Option<String> {
    let embedded = || member(raw, "resource", |inner| with_uri(view, backend, inner));
    with_uri(view, backend, raw).or_else(embedded)
}

fn with_uri(view: &View, backend: &str, raw: &str) -> Option<String> {
    let uri = value::find_text(raw.as_bytes(), &["uri"])?;
    let change = Change { name: Some(view.shown_uri(backend, &uri)?), ..Change::default() };
    Element::parse(List::Resources, raw).ok()?.changed(List::Resources, change).ok()
}

/// An object with a changed member.
fn member(raw: &str, name: &str, change: impl Fn(&str) -> Option<String>) -> Option<String> {
    let inner = value::find(raw.as_bytes(), &[name])?;
    let changed = change(inner)?;
    let start = inner.as_ptr().addr() - raw.as_ptr().addr();
    Some([raw.get(..start)?, &changed, raw.get(start + inner.len()..)?].concat())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::aggregate::{Rules, aggregate};
    use crate::catalogue::{Catalogue, Item};

    /// Two backends with one resource and one template in common.
    fn view() -> View {
        let catalogue = Catalogue {
            resources: vec![Item::parse(List::Resources, r#"{"uri":"file:///r","name":"r"}"#).unwrap()],
            templates: vec![
                Item::parse(List::ResourceTemplates, r#"{"uriTemplate":"db:///{id}","name":"t"}"#).unwrap(),
            ],
            ..Catalogue::default()
        };
        let catalogues = BTreeMap::from(
            [("a", catalogue.clone()), ("b", catalogue)].map(|(name, all)| (name.into(), Arc::new(all))),
        );
        aggregate(&catalogues, &Rules::default())
    }

    fn changed(backend: &str, result: &str) -> String {
        let response = Message::parse(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).into()).unwrap();
        let view = view();
        let shown = shown(&view, backend, response);
        String::from_utf8(shown.result().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn the_second_backend_is_named_wherever_its_uri_stands_and_all_else_stays() {
        for (before, after) in [
            (
                r#"{"n":1.50,"content":[{"type":"text","text":"file:///r"},{"type":"resource_link","uri":"file:///r","name":"r"}]}"#,
                r#"{"n":1.50,"content":[{"type":"text","text":"file:///r"},{"type":"resource_link","uri":"b+file:///r","name":"r"}]}"#,
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"text":"x","uri":"db:///7"}}]}"#,
                r#"{"content":[{"type":"resource","resource":{"text":"x","uri":"b+db:///7"}}]}"#,
            ),
            (r#"{"contents":[{"uri":"file:///r"}]}"#, r#"{"contents":[{"uri":"b+file:///r"}]}"#),
            (
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///r"}}}]}"#,
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"b+file:///r"}}}]}"#,
            ),
            (r#"{"contents":[{"uri":"file:///other"}]}"#, r#"{"contents":[{"uri":"file:///other"}]}"#),
        ] {
            assert_eq!(changed("b", before), after);
            assert_eq!(changed("a", before), before, "the first backend keeps its URIs");
        }
        assert!(view().renames("b") && !view().renames("a"));
    }
}
