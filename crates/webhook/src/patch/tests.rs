use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn message(params: &str) -> Message {
    let body = format!(r#"{{"jsonrpc":"2.0","id":12345678901234567890123,"method":"tools/call","params":{params}}}"#);
    Message::parse(body.into()).unwrap()
}

fn read(patch: &Value) -> Result<Patch, PatchError> {
    Patch::read(&patch.to_string())
}

fn patched(params: &str, patch: &Value) -> Result<String, PatchError> {
    let bytes = read(patch)?.apply(&message(params))?;
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let start = r#"{"jsonrpc":"2.0","id":12345678901234567890123,"method":"tools/call","params":"#;
    Ok(text.strip_prefix(start).unwrap().strip_suffix('}').unwrap().to_owned())
}

/// Operations within `params`.
fn on(operations: Value) -> Value {
    let mut operations = operations;
    for operation in operations.as_array_mut().unwrap() {
        for name in ["path", "from"] {
            if let Some(path) = operation.get(name).and_then(Value::as_str).map(str::to_owned) {
                operation[name] = format!("/mcp_request/params{path}").into();
            }
        }
    }
    operations
}

#[test]
fn each_operation_does_what_the_rfc_says_and_leaves_the_rest_as_it_is() {
    let params = r#"{"z":1.50,"a":[1,2],"o":{"b":1e400}}"#;
    for (operations, result) in [
        (json!([{"op": "add", "path": "/n", "value": null}]), r#"{"z":1.50,"a":[1,2],"o":{"b":1e400},"n":null}"#),
        (json!([{"op": "add", "path": "/z", "value": 2}]), r#"{"z":2,"a":[1,2],"o":{"b":1e400}}"#),
        (json!([{"op": "add", "path": "/a/1", "value": 9}]), r#"{"z":1.50,"a":[1,9,2],"o":{"b":1e400}}"#),
        (json!([{"op": "add", "path": "/a/2", "value": 9}]), r#"{"z":1.50,"a":[1,2,9],"o":{"b":1e400}}"#),
        (json!([{"op": "add", "path": "/a/-", "value": 9}]), r#"{"z":1.50,"a":[1,2,9],"o":{"b":1e400}}"#),
        (json!([{"op": "remove", "path": "/o/b"}]), r#"{"z":1.50,"a":[1,2],"o":{}}"#),
        (json!([{"op": "remove", "path": "/a/0"}]), r#"{"z":1.50,"a":[2],"o":{"b":1e400}}"#),
        (json!([{"op": "replace", "path": "/a/0", "value": {}}]), r#"{"z":1.50,"a":[{},2],"o":{"b":1e400}}"#),
        (
            json!([{"op": "copy", "from": "/o", "path": "/o/c"}]),
            r#"{"z":1.50,"a":[1,2],"o":{"b":1e400,"c":{"b":1e400}}}"#,
        ),
        (json!([{"op": "move", "from": "/o/b", "path": "/a/0"}]), r#"{"z":1.50,"a":[1e400,1,2],"o":{}}"#),
        (json!([{"op": "move", "from": "/z", "path": "/z"}]), params),
        (json!([{"op": "test", "path": "/z", "value": 1.5}, {"op": "test", "path": "/a", "value": [1, 2.0]}]), params),
        (
            json!([{"op": "add", "path": "/x~1y~0~01", "value": 1}]),
            r#"{"z":1.50,"a":[1,2],"o":{"b":1e400},"x/y~~1":1}"#,
        ),
        (json!([]), params),
    ] {
        assert_eq!(patched(params, &on(operations.clone())).as_deref(), Ok(result), "{operations}");
    }
}

#[test]
fn a_patch_that_does_not_fit_changes_nothing() {
    let params = r#"{"a":[1],"t":"x"}"#;
    for operation in [
        json!({"op": "remove", "path": "/b"}),
        json!({"op": "replace", "path": "/b", "value": 1}),
        json!({"op": "replace", "path": "/a/-", "value": 1}),
        json!({"op": "add", "path": "/b/c", "value": 1}),
        json!({"op": "add", "path": "/a/2", "value": 1}),
        json!({"op": "add", "path": "/a/01", "value": 1}),
        json!({"op": "add", "path": "/a/+0", "value": 1}),
        json!({"op": "add", "path": "/t/0", "value": 1}),
        json!({"op": "remove", "path": "/a/1"}),
        json!({"op": "copy", "from": "/b", "path": "/c"}),
        json!({"op": "move", "from": "/a", "path": "/a/0"}),
        json!({"op": "test", "path": "/a", "value": [2]}),
        json!({"op": "test", "path": "/none", "value": null}),
    ] {
        let operations = json!([{"op": "add", "path": "/first", "value": 1}, operation]);
        assert_eq!(patched(params, &on(operations.clone())), Err(PatchError::NotApplicable), "{operations}");
    }
}

#[test]
fn a_malformed_patch_and_an_invalid_one_are_different_errors() {
    for (patch, error) in [
        (json!({}), PatchError::Malformed),
        (json!("x"), PatchError::Malformed),
        (json!([1]), PatchError::Malformed),
        (json!([{"op": 1, "path": "/mcp_request/params"}]), PatchError::Malformed),
        (json!([{"op": "add", "path": 7, "value": 1}]), PatchError::Malformed),
        (json!([{"op": "merge", "path": "/mcp_request/params", "value": 1}]), PatchError::Invalid),
        (json!([{"path": "/mcp_request/params", "value": 1}]), PatchError::Invalid),
        (json!([{"op": "add", "value": 1}]), PatchError::Invalid),
        (json!([{"op": "add", "path": "", "value": 1}]), PatchError::Invalid),
        (json!([{"op": "add", "path": "/mcp_request/params/a"}]), PatchError::Invalid),
        (json!([{"op": "copy", "path": "/mcp_request/params/a"}]), PatchError::Invalid),
        (json!([{"op": "move", "path": "/mcp_request/params/a", "from": ""}]), PatchError::Invalid),
        (json!([{"op": "add", "path": "/mcp_request/params/~2", "value": 1}]), PatchError::Invalid),
        (json!([{"op": "remove", "path": "/principal"}]), PatchError::OutOfScope),
        (json!([{"op": "remove", "path": "/mcp_request"}]), PatchError::OutOfScope),
        (json!([{"op": "replace", "path": "/mcp_request", "value": {}}]), PatchError::OutOfScope),
        (json!([{"op": "remove", "path": "/mcp_requests/params"}]), PatchError::OutOfScope),
        (json!([{"op": "remove", "path": "mcp_request/params"}]), PatchError::OutOfScope),
        (json!([{"op": "copy", "from": "/principal/sub", "path": "/mcp_request/params/a"}]), PatchError::OutOfScope),
    ] {
        assert_eq!(read(&patch), Err(error), "{patch}");
    }
}

#[test]
fn members_that_identify_a_message_cannot_be_changed() {
    for name in ["id", "method", "jsonrpc", "id/x"] {
        let path = format!("/mcp_request/{name}");
        for patch in [
            json!([{"op": "replace", "path": path, "value": "x"}]),
            json!([{"op": "add", "path": path, "value": "x"}]),
            json!([{"op": "remove", "path": path}]),
            json!([{"op": "move", "from": path, "path": "/mcp_request/params/x"}]),
            json!([{"op": "copy", "from": "/mcp_request/params/x", "path": path}]),
        ] {
            assert_eq!(read(&patch), Err(PatchError::Invalid), "{patch}");
        }
    }
    let harmless = json!([{"op": "test", "path": "/mcp_request/method", "value": "tools/call"},
        {"op": "copy", "from": "/mcp_request/id", "path": "/mcp_request/params/id"}]);
    assert_eq!(patched("{}", &harmless).as_deref(), Ok(r#"{"id":12345678901234567890123}"#));
}

#[test]
fn a_patch_cannot_make_a_message_too_large_or_too_deep() {
    let doubling: Vec<Value> = (0..64).map(|at| json!({"op": "copy", "from": "", "path": format!("/{at}")})).collect();
    assert_eq!(patched(r#"{"a":"0123456789"}"#, &on(Value::from(doubling))), Err(PatchError::TooLarge));
    let repeated = vec![json!({ "op": "copy", "from": "/a", "path": "/b" }); 30];
    let large = json!({ "a": "x".repeat(100_000) }).to_string();
    assert_eq!(patched(&large, &on(Value::from(repeated))), Err(PatchError::TooLarge), "each copy counts");
    let nested: Vec<Value> =
        (0..100).map(|at| json!({"op": "add", "path": "/a".repeat(at + 1), "value": {}})).collect();
    assert_eq!(patched("{}", &on(Value::from(nested))), Err(PatchError::TooLarge));
    let moved: Vec<Value> = (0..100)
        .flat_map(|_| {
            [
                json!({"op": "add", "path": "/b", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/b/a"}),
                json!({"op": "move", "from": "/b", "path": "/a"}),
            ]
        })
        .collect();
    assert_eq!(patched(r#"{"a":{}}"#, &on(Value::from(moved))), Err(PatchError::TooLarge));
    let many = vec![json!({"op": "test", "path": "/mcp_request/params", "value": {}}); MOST_OPERATIONS + 1];
    assert_eq!(read(&Value::from(many)), Err(PatchError::TooLarge));
    let long = json!([{"op": "add", "path": "/x", "value": "x".repeat(MOST_BYTES)}]);
    assert_eq!(patched("{}", &on(long)), Err(PatchError::TooLarge));
}

#[test]
fn a_message_with_too_many_values_is_not_made_a_tree() {
    let dense = |values: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(values - 1));
    let one = on(json!([{"op": "add", "path": "/b", "value": 1}]));
    // The message has its own four values and two lists of params, the patch an object of three and its list.
    let most = PATCH_VALUES - 6 - 5;
    assert!(patched(&dense(most), &one).is_ok());
    assert_eq!(patched(&dense(most + 1), &one), Err(PatchError::TooLarge));
    let copied = on(json!([{"op": "copy", "from": "/a", "path": "/b"}]));
    assert!(patched(&dense(PATCH_VALUES / 2 - 20), &copied).is_ok());
    assert_eq!(patched(&dense(PATCH_VALUES / 2), &copied), Err(PatchError::TooLarge), "copies count");
    let long = format!(r#"[{{"op":"test","path":"/mcp_request/params","value":[{}0]}}]"#, "0,".repeat(PATCH_VALUES));
    assert_eq!(Patch::read(&long), Err(PatchError::TooLarge));
}

#[test]
fn the_reservation_grows_with_the_values() {
    let patch = read(&on(json!([{"op": "add", "path": "/b", "value": 1}]))).unwrap();
    let (few, many) = (message(r#"{"a":[0]}"#), message(&format!(r#"{{"a":[{}0]}}"#, "0,".repeat(9_999))));
    assert!(patch.memory(&many) - patch.memory(&few) >= 9_999 * VALUE_BYTES);
    let copying = read(&on(json!([{"op": "copy", "from": "/a", "path": "/b"}]))).unwrap();
    assert!(copying.memory(&few) >= PATCH_VALUES * VALUE_BYTES, "copies may take all that there is");
    let denied = crate::response::memory(br#"{"allowed":false}"#);
    assert!(crate::response::memory(br#"{"allowed":true,"patch":[0,0,0]}"#) >= denied + 4 * VALUE_BYTES);
}

/// A tree of JSON, small enough that patches hit it.
fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), (0..5_i64).prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|members| json!(members)),
        ]
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let path = || "(/([ab]|[012]|-)){1,3}";
    (prop::sample::select(vec!["add", "remove", "replace", "copy", "move", "test"]), path(), path(), tree())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    /// After any patch the message keeps the members that identify it, and removing what was added gives the message back.
    #[test]
    fn a_patched_message_is_the_same_message(params in prop::collection::btree_map("[ab]", tree(), 0..3), patch in prop::collection::vec(operation(), 0..5)) {
        let params = json!(params).to_string();
        let message = message(&params);
        if let Ok(bytes) = read(&on(Value::from(patch))).and_then(|patch| patch.apply(&message)) {
            let patched = Message::parse(bytes).unwrap();
            prop_assert_eq!(patched.id(), message.id());
            prop_assert_eq!(patched.method(), message.method());
        }
        let undone = on(json!([{"op": "add", "path": "/c", "value": {"x": 1}}, {"op": "remove", "path": "/c"}]));
        prop_assert_eq!(patched(&params, &undone), Ok(params));
    }
}
