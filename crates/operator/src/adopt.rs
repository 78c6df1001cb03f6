//! Taking over what the operator before us made, once: its fields become ours, so that what we do not send is removed.
//!
//! Server-side apply removes a field that we owned and no longer send. Fields that another manager wrote by `Update` stay for
//! ever, unless their ownership is handed over first: that is one JSON patch of `metadata.managedFields`, tested against the
//! resource version it was made from.

use serde_json::{Value, json};

use crate::write::MANAGER;

/// The names under which the operator before us wrote.
const BEFORE_US: &[&str] = &["thv-operator", "toolhive-operator"];

/// The patch that hands its fields over to us; nothing if it wrote nothing here.
///
/// The number of replicas is not handed over where we do not send one: it would be removed, and be 1 again, whatever an
/// autoscaler had made of it.
pub fn handover(metadata: &Value, sends_replicas: bool) -> Option<Value> {
    let fields = metadata.get("managedFields")?.as_array()?;
    let is_before_us = |entry: &Value| {
        let manager = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
        BEFORE_US.contains(&manager)
            && entry.get("operation").is_some_and(|operation| operation == "Update")
            && entry.get("subresource").is_none_or(|part| part.as_str().unwrap_or_default().is_empty())
    };
    let before = fields.iter().find(|entry| is_before_us(entry))?;
    let mut ours = before.clone();
    let object = ours.as_object_mut()?;
    object.insert("manager".into(), json!(MANAGER));
    object.insert("operation".into(), json!("Apply"));
    if !sends_replicas && let Some(spec) = ours.pointer_mut("/fieldsV1/f:spec").and_then(Value::as_object_mut) {
        spec.remove("f:replicas");
    }
    // An apply of ours has an entry already after an earlier, interrupted takeover: then theirs is only dropped.
    let known = fields.iter().any(|entry| entry.get("manager").is_some_and(|manager| manager == MANAGER));
    let mut next: Vec<Value> = fields.iter().filter(|entry| !is_before_us(entry)).cloned().collect();
    if !known {
        next.push(ours);
    }
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion") },
        { "op": "replace", "path": "/metadata/managedFields", "value": next },
    ]))
}

/// The patch by which the operator gives up the ownership of the number of replicas; nothing if it does not own it.
///
/// Were it simply not sent any more, the API server would remove it, and it would be 1, whatever an autoscaler had made of it.
pub fn leave_replicas(metadata: &Value) -> Option<Value> {
    let mut fields = metadata.get("managedFields")?.as_array()?.clone();
    let is_ours = |entry: &Value| {
        entry.get("manager").is_some_and(|manager| manager == MANAGER)
            && entry.get("operation").is_some_and(|operation| operation == "Apply")
    };
    let ours = fields.iter_mut().find(|entry| is_ours(entry))?;
    ours.pointer_mut("/fieldsV1/f:spec")?.as_object_mut()?.remove("f:replicas")?;
    Some(json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": metadata.get("resourceVersion") },
        { "op": "replace", "path": "/metadata/managedFields", "value": fields },
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(entries: &Value) -> Value {
        json!({ "resourceVersion": "7", "managedFields": entries })
    }

    #[test]
    fn the_fields_of_the_operator_before_us_become_ours_but_for_replicas() {
        let theirs = json!({ "manager": "thv-operator", "operation": "Update", "fieldsV1": { "f:spec": { "f:replicas": {}, "f:template": {} } } });
        let status = json!({ "manager": "kube-controller-manager", "operation": "Update", "subresource": "status" });
        let patch = handover(&metadata(&json!([theirs, status])), false).unwrap();
        assert_eq!(patch[0]["value"], "7");
        let ours = json!({ "manager": MANAGER, "operation": "Apply", "fieldsV1": { "f:spec": { "f:template": {} } } });
        assert_eq!(patch[1]["value"], json!([status, ours]));
        let kept = handover(&metadata(&json!([theirs])), true).unwrap();
        assert!(kept[1]["value"][0]["fieldsV1"]["f:spec"].get("f:replicas").is_some());
    }

    #[test]
    fn the_number_of_replicas_is_left_to_others_where_it_was_ours() {
        let entry = |manager: &str, spec: Value| json!({ "manager": manager, "operation": "Apply", "fieldsV1": { "f:spec": spec } });
        let theirs = entry("other", json!({ "f:replicas": {} }));
        let ours = entry(MANAGER, json!({ "f:replicas": {}, "f:template": {} }));
        let patch = leave_replicas(&metadata(&json!([theirs, ours]))).unwrap();
        assert_eq!(patch[0]["value"], "7");
        assert_eq!(patch[1]["value"], json!([theirs, entry(MANAGER, json!({ "f:template": {} }))]));
        let left = entry(MANAGER, json!({ "f:template": {} }));
        assert_eq!(leave_replicas(&metadata(&json!([theirs, left]))), None);
    }

    #[test]
    fn objects_that_it_never_wrote_are_left_alone() {
        for entries in [
            json!([]),
            json!([{ "manager": MANAGER, "operation": "Apply" }]),
            json!([{ "manager": "kubectl", "operation": "Update" }]),
        ] {
            assert_eq!(handover(&metadata(&entries), false), None);
        }
    }
}
