use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use skep_api::resource::{KindName, Resource};

use super::*;
use crate::key::Key;
use crate::validate::testing::{Surroundings, changed, resource};

fn tool(spec: &Value) -> CompositeTool {
    serde_json::from_value(spec.clone()).unwrap()
}

fn good() -> Value {
    json!({
        "name": "report",
        "description": "writes a report",
        "parameters": { "type": "object" },
        "timeout": "5m",
        "steps": [
            { "id": "ask", "type": "elicitation", "message": "sure?", "schema": { "type": "object" }, "timeout": "2m" },
            { "id": "find", "tool": "search.query", "dependsOn": ["ask"], "onError": { "action": "retry", "retryCount": 2, "retryDelay": "1s" } },
            { "id": "all", "type": "forEach", "collection": "{{json .steps.find.output}}", "itemVar": "one", "dependsOn": ["find"],
              "step": { "tool": "note", "arguments": { "text": "{{.forEach.one}}" } } },
        ],
        "output": { "properties": {
            "count": { "type": "integer", "description": "how many", "value": "{{.steps.all.output.count}}" },
            "more": { "type": "object", "description": "the rest", "properties": {
                "text": { "type": "string", "description": "a text", "value": "x", "default": "" },
            }},
        }, "required": ["count"] },
    })
}

#[test]
fn a_good_tool_has_no_problems() {
    assert_eq!(problems(&tool(&good())), Vec::<String>::new());
}

/// A change of the good tool, and what must be said about it.
#[test]
fn every_rule_says_what_is_wrong_and_where() {
    let cases: &[(&str, Value, &str)] = &[
        ("/name", json!(" "), "name: it is empty"),
        ("/description", json!(null), "description: it is empty"),
        ("/parameters", json!({ "type": "string" }), "parameters: it is not the schema of an object"),
        ("/timeout", json!("soon"), "timeout: `soon` is not a duration"),
        ("/timeout", json!("0s"), "timeout: `0s` is not above zero"),
        ("/steps", json!([]), "steps: there is no step"),
        ("/steps/0/id", json!(""), "steps[0].id: it is empty"),
        ("/steps/1/id", json!("ask"), "steps[1].id: `ask` is the id of an earlier step"),
        ("/steps/1/dependsOn", json!(["nobody"]), "steps[1].dependsOn: there is no step `nobody`"),
        ("/steps/1/dependsOn", json!(["find"]), "steps: `find` → `find` wait for each other"),
        ("/steps/0/dependsOn", json!(["all"]), "steps: `ask` → `all` → `find` → `ask` wait for each other"),
        ("/steps/1/tool", json!(null), "steps[1].tool: it is missing"),
        ("/steps/1/tool", json!("-x"), "steps[1].tool: `-x` is not a valid tool name"),
        ("/steps/1/timeout", json!("-1s"), "steps[1].timeout: `-1s` is not above zero"),
        ("/steps/1/onError/retryCount", json!(0), "steps[1].onError.retryCount: `0` is too few"),
        ("/steps/1/onError/retryDelay", json!("1"), "steps[1].onError.retryDelay: `1` is not a duration"),
        ("/steps/1/defaultResults", json!("none"), "steps[1].defaultResults: it is not an object"),
        ("/steps/0/message", json!(""), "steps[0].message: it is empty"),
        ("/steps/0/schema", json!(null), "steps[0].schema: it is missing"),
        ("/steps/0/timeout", json!("11m"), "steps[0].timeout: `11m` is out of bounds; choose from 1s to 10m0s"),
        ("/steps/2/collection", json!(null), "steps[2].collection: it is empty"),
        ("/steps/2/itemVar", json!("index"), "steps[2].itemVar: `index` is not a valid name for the current element"),
        ("/steps/2/itemVar", json!("1st"), "steps[2].itemVar: `1st` is not a valid name"),
        ("/steps/2/maxParallel", json!(-1), "steps[2].maxParallel: `-1` is below zero"),
        ("/steps/2/step", json!(null), "steps[2].step: it is missing"),
        ("/steps/2/step", json!({ "type": "forEach" }), "steps[2].step.type: only a step of type `tool`"),
        ("/steps/2/step", json!({ "tool": 7 }), "steps[2].step: it cannot be read"),
        ("/steps/2/step/tool", json!(null), "steps[2].step.tool: it is missing"),
        ("/output/required", json!(["nothing"]), "output.required: there is no member `nothing`"),
        ("/output/properties/count/description", json!(null), "output.properties.count.description: it is empty"),
        ("/output/properties/count/value", json!(null), "output.properties.count: it has neither value nor properties"),
        ("/output/properties/more/value", json!("x"), "output.properties.more: it has both value and properties"),
        ("/output/properties/more/type", json!("array"), "output.properties.more.type: only an object has properties"),
        (
            "/output/properties/more/properties/text",
            json!(1),
            "output.properties.more.properties.text: it cannot be read",
        ),
    ];
    for (place, value, expected) in cases {
        let found = problems(&tool(&changed(&good(), place, value)));
        assert!(found.iter().any(|one| one.starts_with(expected)), "{place}: {found:?}");
        // Steps that depend on a renamed step are invalid as well.
        assert!(found.len() == 1 || place.ends_with("/id"), "{place}: {found:?}");
    }
}

#[test]
fn templates_are_bounded_wherever_they_stand() {
    let deep = format!("{{{{ {}.x }}}}", "(".repeat(10_000));
    for place in [
        "/steps/0/message",
        "/steps/1/condition",
        "/steps/1/arguments",
        "/steps/2/collection",
        "/steps/2/step/arguments/text",
        "/output/properties/count/value",
        "/output/properties/more/properties/text/value",
    ] {
        let value = if place.ends_with("arguments") { json!({ "a": [{ "b": deep }] }) } else { json!(deep) };
        let found = problems(&tool(&changed(&good(), place, &value)));
        let expected = "more than 32 brackets and choices stand inside each other";
        assert!(found.len() == 1 && found[0].contains(expected), "{place}: {found:?}");
    }
    let large = problems(&tool(&changed(&good(), "/steps/1/condition", &json!("x".repeat(70_000)))));
    assert_eq!(large, ["steps[1].condition: it has 70000 bytes, and 65536 are the most; write less, or split it"]);
    let nested = problems(&tool(&changed(&good(), "/steps/1/arguments", &json!({ "a": [{ "b": deep }] }))));
    assert!(nested[0].starts_with("steps[1].arguments.a[0].b: "), "{nested:?}");
}

#[test]
fn an_output_is_not_endless() {
    let mut member = json!({ "type": "string", "description": "d", "value": "v" });
    for _ in 0..10 {
        member = json!({ "type": "object", "description": "d", "properties": { "inner": member } });
    }
    let mut spec = good();
    spec["output"] = json!({ "properties": { "outer": member } });
    let found = problems(&tool(&spec));
    assert!(found.len() == 1 && found[0].contains("deeper than 10"), "{found:?}");
}

#[test]
fn a_hundred_steps_are_enough() {
    let mut spec = good();
    let step = |index: usize| json!({ "id": format!("s{index}"), "tool": "t" });
    spec["steps"] = (0..100).map(step).collect();
    assert!(problems(&tool(&spec)).is_empty());
    spec["steps"] = (0..101).map(step).collect();
    assert_eq!(problems(&tool(&spec)), ["steps: there are 101 steps; write at most 100"]);
    // Nothing else is checked of them.
    spec["steps"] =
        (0..20_000).map(|index| json!({ "id": "s", "tool": "-", "dependsOn": [format!("s{index}")] })).collect();
    assert_eq!(problems(&tool(&spec)), ["steps: there are 20000 steps; write at most 100"]);
}

#[test]
fn steps_are_ordered_however_they_depend_on_each_other() {
    let with_steps = |before: &dyn Fn(usize) -> Vec<String>| {
        let steps: Vec<Value> = (0..100)
            .map(|index| json!({ "id": format!("s{index}"), "tool": "t", "dependsOn": before(index) }))
            .collect();
        let mut spec = good();
        spec["steps"] = json!(steps);
        spec["output"] = Value::Null;
        problems(&tool(&spec))
    };
    let name = |index: usize| format!("s{index}");
    assert!(with_steps(&|index| (index + 1..100).map(name).collect()).is_empty());
    assert!(with_steps(&|index| vec![name(index / 2); if index == 0 { 0 } else { 5_000 }]).is_empty());
    assert!(with_steps(&|index| vec![name(index.saturating_sub(1)); if index == 0 { 0 } else { 5_000 }]).is_empty());
    let circle = with_steps(&|index| vec![name((index + 1) % 100)]);
    assert!(circle.len() == 1 && circle[0].starts_with("steps: `s0` → `s1` → `s2` → "), "{circle:?}");
    // What comes to an end is not followed, though it is named before the circle.
    let branches: [&[usize]; 5] = [&[1, 2], &[3], &[4], &[], &[2]];
    let beside = with_steps(&|index| {
        branches.get(index).map(|before| before.iter().copied().map(name).collect()).unwrap_or_default()
    });
    assert_eq!(beside, ["steps: `s2` → `s4` → `s2` wait for each other; remove one of these dependencies"]);
    // What waits for a circle is not in it.
    let behind = with_steps(&|index| if index < 98 { vec![name(index + 1)] } else { vec![name(197 - index)] });
    assert_eq!(behind, ["steps: `s98` → `s99` → `s98` wait for each other; remove one of these dependencies"]);
}

/// Each value made a place of all the names around it: 830 KB took 3 GB.
#[test]
fn problems_are_reported_in_bounded_space() {
    let mut arguments = json!(vec![format!("{{{{{}", "(".repeat(33)); 5_000]);
    for _ in 0..50 {
        arguments = json!({ "k".repeat(1_000): arguments });
    }
    let mut spec = good();
    spec["steps"] = json!([{ "id": "a", "tool": "t", "arguments": arguments }]);
    let me = resource(KindName::VirtualMCPCompositeToolDefinition, "t", &spec);
    let Resource::VirtualMCPCompositeToolDefinition(object) = &me else { panic!("another kind") };
    let status = plan(&me, object, &Surroundings::default().world()).status;
    let errors = status.field("validationErrors").unwrap().as_array().unwrap();
    assert_eq!((errors.len(), &errors[20]), (21, &json!("and 4980 more")));
    assert!(errors.iter().all(|error| error.as_str().unwrap().len() <= 1024), "{errors:?}");
    assert!(errors[0].as_str().unwrap().contains("more than 32 brackets"), "{}", errors[0]);
    let message = &status.find("Ready").unwrap().message;
    assert!(message.ends_with("; and 4990 more") && message.len() < 11_000, "{message}");
}

#[test]
fn the_status_says_whether_it_is_good_and_who_uses_it() {
    let users = ["b", "a"].map(|name| Key::resource(KindName::VirtualMCPServer, "ns", name));
    let surroundings = Surroundings { users: BTreeSet::from(users), ..Surroundings::default() };
    let planned = |spec: &Value| {
        let me = resource(KindName::VirtualMCPCompositeToolDefinition, "t", spec);
        let Resource::VirtualMCPCompositeToolDefinition(object) = &me else { panic!("another kind") };
        plan(&me, object, &surroundings.world())
    };
    let status = planned(&good()).status.onto(&json!({ "validationErrors": ["old"] }), 1, "now");
    assert_eq!(status["validationStatus"], "Valid");
    assert_eq!(status["validationErrors"], Value::Null);
    assert_eq!(status["referencingVirtualServers"], json!(["a", "b"]));

    let mut bad = good();
    bad["steps"] = json!([]);
    let planned = planned(&bad);
    assert_eq!(planned.status.field("validationStatus"), Some(&json!("Invalid")));
    assert_eq!(planned.status.field("validationErrors"), Some(&json!(["steps: there is no step; write at least one"])));
    let conditions: BTreeMap<&str, bool> =
        planned.status.conditions().iter().map(|one| (one.kind.as_str(), one.is_true())).collect();
    assert_eq!(conditions, BTreeMap::from([("Ready", false), ("WorkflowValidated", false)]));
}
