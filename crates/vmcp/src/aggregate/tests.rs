use serde_json::{Value, json};
use skep_api::virtual_config::Aggregation;
use skep_mcp::list::List;

use super::*;
use crate::catalogue::Item;

fn catalogue(items: &Value) -> Arc<Catalogue> {
    let mut catalogue = Catalogue::default();
    for (list, key) in [
        (List::Tools, "tools"),
        (List::Prompts, "prompts"),
        (List::Resources, "resources"),
        (List::ResourceTemplates, "templates"),
    ] {
        let found = items[key].as_array().into_iter().flatten();
        catalogue.items_mut(list).extend(found.map(|item| Item::parse(list, &item.to_string()).unwrap()));
    }
    Arc::new(catalogue)
}

fn tools(names: &[&str]) -> Value {
    json!({ "tools": names.iter().map(|name| json!({ "name": name, "inputSchema": {} })).collect::<Vec<_>>() })
}

fn of(backends: &[(&str, Value)], rules: &Value) -> View {
    let catalogues = backends.iter().map(|(name, items)| (BackendName::from(*name), catalogue(items))).collect();
    let aggregation: Aggregation = serde_json::from_value(rules.clone()).unwrap();
    aggregate(&catalogues, &Rules::of(&aggregation))
}

/// What clients see, with `backend/original` of each tool; hidden ones in brackets.
fn shown(view: &View) -> Vec<String> {
    let tool = |name: &str, tool: &ToolRoute| {
        let shown: Value = serde_json::from_str(&tool.route.shown).unwrap();
        assert_eq!(shown["name"], name);
        let text = format!("{name}={}/{}", tool.route.backend, tool.route.original);
        if tool.is_hidden { format!("[{text}]") } else { text }
    };
    view.tools.iter().map(|(name, route)| tool(name, route)).collect()
}

#[test]
fn every_strategy_names_tools_in_its_way() {
    let backends = [("a", tools(&["x", "y"])), ("b", tools(&["x", "z"])), ("c", tools(&["x"]))];
    for (rules, expected) in [
        (json!({}), vec!["a_x=a/x", "a_y=a/y", "b_x=b/x", "b_z=b/z", "c_x=c/x"]),
        (
            json!({ "conflictResolution": "prefix", "conflictResolutionConfig": { "prefixFormat": "{workload}." } }),
            vec!["a.x=a/x", "a.y=a/y", "b.x=b/x", "b.z=b/z", "c.x=c/x"],
        ),
        (
            json!({ "conflictResolution": "priority", "conflictResolutionConfig": { "priorityOrder": ["c", "b"] } }),
            vec!["x=c/x", "y=a/y", "z=b/z"],
        ),
        (
            json!({ "conflictResolution": "priority",
                "conflictResolutionConfig": { "priorityOrder": ["d"], "prefixFormat": "{workload}-" } }),
            vec!["a-x=a/x", "b-x=b/x", "c-x=c/x", "y=a/y", "z=b/z"],
        ),
        (json!({ "conflictResolution": "manual" }), vec!["y=a/y", "z=b/z"]),
        (json!({ "conflictResolution": "prefixOnConflict" }), vec!["a_x=a/x", "b_x=b/x", "c_x=c/x", "y=a/y", "z=b/z"]),
    ] {
        assert_eq!(shown(&of(&backends, &rules)), expected, "{rules}");
    }
}

#[test]
fn overrides_come_before_filters_and_filters_before_names() {
    let backends = [("a", tools(&["x", "y", "z"])), ("b", tools(&["w"]))];
    let rules = json!({ "tools": [{ "workload": "a", "filter": ["better", "y"],
        "overrides": { "x": { "name": "better", "description": "d", "annotations": { "readOnlyHint": true } } } }] });
    let view = of(&backends, &rules);
    assert_eq!(shown(&view), ["a_better=a/x", "a_y=a/y", "[a_z=a/z]", "b_w=b/w"]);
    let better: Value = serde_json::from_str(&view.tools["a_better"].route.shown).unwrap();
    assert_eq!((&better["description"], &better["annotations"]), (&json!("d"), &json!({ "readOnlyHint": true })));
    for (rules, visible) in [
        (json!({ "excludeAllTools": true }), 0),
        (json!({ "tools": [{ "workload": "a", "excludeAll": true }] }), 1),
        (json!({ "defaultToolVisibility": "deny", "tools": [{ "workload": "b" }] }), 1),
    ] {
        let view = of(&backends, &rules);
        assert_eq!(view.tools.values().filter(|tool| !tool.is_hidden).count(), visible, "{rules}");
        assert_eq!(view.tools.len(), 4, "a hidden tool can be a step: {rules}");
    }
}

#[test]
fn a_hidden_tool_is_for_steps_only_under_every_name_it_has() {
    let rules = json!({ "tools": [{ "workload": "a", "excludeAll": true }] });
    let view = of(&[("a", tools(&["x"]))], &rules);
    for name in ["x", "a_x", "a.x"] {
        assert_eq!(view.tool(name), None, "{name}");
    }
    for name in ["a_x", "a.x"] {
        assert_eq!(view.tool_of_step(name).map(|(name, route)| (name, &*route.original)), Some(("a_x", "x")), "{name}");
    }
    assert_eq!(view.tool_of_step("b.x"), None);
}

#[test]
fn a_hidden_tool_takes_no_name_from_one_that_is_seen() {
    let rules = json!({ "conflictResolution": "manual", "tools": [{ "workload": "a", "excludeAll": true }] });
    let view = of(&[("a", tools(&["x"])), ("b", tools(&["x"]))], &rules);
    assert_eq!(view.tool("x").map(|route| &*route.backend), Some("b"));
    assert!(view.conflicts.is_empty());
    assert!(view.tool_of_step("a.x").is_some());
}

#[test]
fn names_that_meet_are_told_apart_and_long_ones_are_cut_alike_everywhere() {
    let backends = [("a", tools(&["b_c"])), ("a_b", tools(&["c"]))];
    let view = of(&backends, &json!({}));
    assert_eq!(view.tool("a_b_c").map(|route| &*route.backend), Some("a"));
    let renamed = view.tools.keys().find(|name| &***name != "a_b_c").unwrap();
    assert!(renamed.starts_with("a_b_c_") && renamed.len() <= 64, "{renamed}");
    assert_eq!(view.conflicts.len(), 1);
    assert_eq!(view.conflicts[0].outcome, Outcome::Renamed);

    let (one, two) = ("t".repeat(80), format!("{}x", "t".repeat(79)));
    let view = of(&[("backend", tools(&[&one, &two]))], &json!({}));
    assert_eq!(view.tools.len(), 2);
    assert!(view.tools.keys().all(|name| name.len() <= 64));
    assert_eq!(view, of(&[("backend", tools(&[&two, &one]))], &json!({})), "the order of a list changes no name");
}

#[test]
fn prompts_get_a_prefix_unless_their_backend_has_a_rank() {
    let prompts =
        |names: &[&str]| json!({ "prompts": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() });
    let backends = [("a", prompts(&["p", "q"])), ("b", prompts(&["p"])), ("c", prompts(&["r"]))];
    let names = |rules: &Value| -> Vec<String> {
        of(&backends, rules).prompts.iter().map(|(name, route)| format!("{name}={}", route.backend)).collect()
    };
    let prefixed = ["a_p=a", "a_q=a", "b_p=b", "c_r=c"];
    assert_eq!(names(&json!({})), prefixed);
    assert_eq!(names(&json!({ "conflictResolution": "manual" })), prefixed);
    let priority =
        json!({ "conflictResolution": "priority", "conflictResolutionConfig": { "priorityOrder": ["b", "a"] } });
    assert_eq!(names(&priority), ["c_r=c", "p=b", "q=a"]);
    assert_eq!(names(&json!({ "conflictResolution": "prefixOnConflict" })), ["a_p=a", "b_p=b", "q=a", "r=c"]);
}

#[test]
fn resources_keep_their_uris_and_each_can_be_read() {
    let items = json!({ "resources": [{ "uri": "file:///r", "name": "r" }],
        "templates": [{ "uriTemplate": "db:///{table}", "name": "t" }] });
    let view = of(&[("a", items.clone()), ("2b", items)], &json!({}));
    let found = |uri: &str| view.resource(uri).map(|(backend, uri)| format!("{backend} {uri}"));
    // `2b` comes before `a`.
    assert_eq!(found("file:///r").as_deref(), Some("2b file:///r"));
    assert_eq!(found("a+file:///r").as_deref(), Some("a file:///r"));
    assert_eq!(found("db:///users").as_deref(), Some("2b db:///users"));
    assert_eq!(found("a+db:///users").as_deref(), Some("a db:///users"));
    assert_eq!(found("db:///{table}").as_deref(), Some("2b db:///{table}"));
    assert_eq!(found("db:///a/b"), None);
    assert_eq!(found("other:///r"), None);
    assert_eq!(view.shown_uri("a", "file:///r").as_deref(), Some("a+file:///r"));
    assert_eq!(view.shown_uri("2b", "file:///r").as_deref(), None);
    let shown: Value = serde_json::from_str(&view.resources["a+file:///r"].shown).unwrap();
    assert_eq!(shown, json!({ "uri": "a+file:///r", "name": "r" }));
}
