use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::error::PlanError;

/// Triples that Kubernetes' own implementation gave; `result` is null for a patch that it refuses.
const GOLDEN: &str = include_str!("golden.json");

#[test]
fn patches_are_merged_as_kubernetes_does() {
    let cases: Vec<Value> = serde_json::from_str(GOLDEN).unwrap();
    assert!(cases.len() > 100);
    for case in cases {
        let merged = strategic(&case["base"], &case["patch"]);
        match &case["result"] {
            Value::Null => assert!(merged.is_err(), "{}: {merged:?}", case["about"]),
            expected => assert_eq!(merged.as_ref(), Ok(expected), "{}", case["about"]),
        }
    }
}

#[test]
fn a_patch_of_the_wrong_shape_is_refused_with_its_place() {
    let base = json!({ "metadata": { "labels": { "a": "b" } }, "spec": {
        "nodeName": "n", "tolerations": [], "securityContext": {},
        "containers": [{ "name": "mcp", "ports": [{ "containerPort": 80 }], "resources": { "limits": { "cpu": "1" } } }],
    } });
    for (patch, expected) in [
        (json!([]), "podTemplateSpec: the patch has a list where an object belongs"),
        (json!({ "spec": [] }), "spec: the patch has a list where an object belongs"),
        (json!({ "spec": { "tolerations": {} } }), "spec.tolerations: the patch has an object where a list belongs"),
        (json!({ "spec": { "nodeName": {} } }), "spec.nodeName: the patch has an object where a single value belongs"),
        (
            json!({ "spec": { "securityContext": "x" } }),
            "spec.securityContext: the patch has a single value where an object belongs",
        ),
        (
            json!({ "spec": { "containers": ["mcp"] } }),
            "spec.containers: the patch has a single value where an object belongs",
        ),
        (
            json!({ "spec": { "containers": [{ "name": "mcp", "ports": [{ "name": "x" }] }] } }),
            "spec.containers[mcp].ports: an element has no `containerPort`, the merge key of this list; add it",
        ),
        (
            json!({ "spec": { "containers": [{ "name": "mcp", "ports": [{ "containerPort": 80, "$patch": 1 }] }] } }),
            "spec.containers[mcp].ports: `$patch` cannot be a single value; write `replace`, `delete` or `merge`, or leave it out",
        ),
        (
            json!({ "spec": { "containers": [{ "name": "mcp", "resources": { "limits": [] } }] } }),
            "spec.containers[mcp].resources.limits: the patch has a list where an object belongs",
        ),
        (
            json!({ "spec": { "$deleteFromPrimitiveList/tolerations": "x" } }),
            "spec: `$deleteFromPrimitiveList/tolerations` must be a list",
        ),
    ] {
        assert_eq!(strategic(&base, &patch).unwrap_err().to_string(), expected);
    }
}

/// Where Kubernetes' implementation leaves a directive or an empty element behind, or refuses what it documents.
#[test]
fn no_directive_survives() {
    let base =
        json!({ "spec": { "containers": [{ "name": "a" }], "tolerations": [{ "key": "t" }], "securityContext": {} } });
    let patch = json!({ "spec": {
        "containers": [{ "name": "b", "env": [{ "name": "X", "$patch": "delete" }, { "name": "Y", "value": "1" }] }],
        "tolerations": [{ "$patch": "replace" }, { "key": "u" }],
        "securityContext": { "$patch": "merge", "fsGroup": 1 },
    } });
    let expected = json!({ "spec": {
        "containers": [{ "name": "b", "env": [{ "name": "Y", "value": "1" }] }, { "name": "a" }],
        "tolerations": [{ "key": "u" }],
        "securityContext": { "fsGroup": 1 },
    } });
    assert_eq!(strategic(&base, &patch).unwrap(), expected);
    let merge =
        json!({ "spec": { "containers": [{ "$patch": "merge" }, { "name": "a", "$patch": "merge", "tty": true }] } });
    assert_eq!(strategic(&base, &merge).unwrap()["spec"]["containers"], json!([{ "name": "a", "tty": true }]));
}

#[test]
fn unknown_members_are_kept() {
    let base = json!({ "spec": { "novelty": { "a": 1, "list": [1] } } });
    let patch = json!({ "spec": { "novelty": { "b": { "c": 2 }, "list": [2] } } });
    assert_eq!(
        strategic(&base, &patch).unwrap(),
        json!({ "spec": { "novelty": { "a": 1, "b": { "c": 2 }, "list": [2] } } })
    );
}

#[test]
fn a_pod_template_is_checked_as_an_api_server_would() {
    for template in [
        json!({}),
        json!({ "spec": { "containers": [{ "name": "mcp", "novelty": 1 }], "alsoNew": {} } }),
        json!({ "spec": { "containers": [{ "resources": { "limits": { "cpu": 1, "memory": "1Gi" } } }] } }),
        json!({ "metadata": { "labels": { "limits": "x" } }, "spec": { "nodeSelector": null } }),
    ] {
        assert_eq!(check_pod_template(&template), Ok(()), "{template}");
    }
    for (template, place) in [
        (json!([]), "podTemplateSpec: "),
        (json!({ "spec": "x" }), "spec: "),
        (json!({ "spec": { "containers": {} } }), "spec.containers: "),
        (
            json!({ "spec": { "containers": [{ "ports": [{ "containerPort": "80" }] }] } }),
            "spec.containers[0].ports[0].containerPort: ",
        ),
        (json!({ "spec": { "hostNetwork": "yes" } }), "spec.hostNetwork: "),
        (json!({ "metadata": { "labels": { "a": 1 } } }), "metadata.labels.a: "),
        (
            json!({ "spec": { "containers": [{ "resources": { "limits": { "cpu": "much" } } }] } }),
            "spec.containers[0].resources.limits.cpu: `much`",
        ),
        (
            json!({ "spec": { "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": "1 Gi" } }] } }),
            "spec.volumes[0].emptyDir.sizeLimit: `1 Gi`",
        ),
    ] {
        let PlanError::InvalidPodTemplate(error) = check_pod_template(&template).unwrap_err() else {
            panic!("{place}")
        };
        assert!(error.starts_with(place), "{error}");
    }
}

/// From the appendix of RFC 7396.
#[test]
fn merge_patch_follows_the_rfc() {
    for (target, patch, expected) in [
        (json!({ "a": "b" }), json!({ "a": "c" }), json!({ "a": "c" })),
        (json!({ "a": "b" }), json!({ "b": "c" }), json!({ "a": "b", "b": "c" })),
        (json!({ "a": "b" }), json!({ "a": null }), json!({})),
        (json!({ "a": "b", "b": "c" }), json!({ "a": null }), json!({ "b": "c" })),
        (json!({ "a": ["b"] }), json!({ "a": "c" }), json!({ "a": "c" })),
        (json!({ "a": "c" }), json!({ "a": ["b"] }), json!({ "a": ["b"] })),
        (json!({ "a": { "b": "c" } }), json!({ "a": { "b": "d", "c": null } }), json!({ "a": { "b": "d" } })),
        (json!({ "a": [{ "b": "c" }] }), json!({ "a": [1] }), json!({ "a": [1] })),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({ "a": "b" }), json!(["c"]), json!(["c"])),
        (json!({ "a": "foo" }), json!(null), json!(null)),
        (json!({ "a": "foo" }), json!("bar"), json!("bar")),
        (json!({ "e": null }), json!({ "a": 1 }), json!({ "e": null, "a": 1 })),
        (json!([1, 2]), json!({ "a": "b", "c": null }), json!({ "a": "b" })),
        (json!({}), json!({ "a": { "bb": { "ccc": null } } }), json!({ "a": { "bb": {} } })),
    ] {
        assert_eq!(merge_patch(&target, &patch), expected);
    }
}

#[test]
fn nothing_to_change_is_an_empty_patch() {
    let value = json!({ "a": { "b": [1, { "c": 2 }] } });
    assert_eq!(merge_diff(&value, &value), json!({}));
    assert_eq!(merge_diff(&json!({ "a": 1 }), &json!({ "a": 1, "b": null })), json!({}));
}

fn values() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![any::<bool>().prop_map(Value::from), (0..5).prop_map(Value::from), "[a-c]?".prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            objects(inner).prop_map(Value::Object),
        ]
    })
}

fn objects(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[a-d]", value, 0..4).prop_map(|members| members.into_iter().collect())
}

/// Templates made of few names, so that patches often meet what they change.
fn templates() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[XYZ]", "[a-c]?", 0..3);
    let container = (env, prop::option::of("[ij]"));
    prop::collection::btree_map("[a-e]", container, 0..5).prop_map(|containers| {
        let container =
            |(name, (env, image)): (String, (std::collections::BTreeMap<String, String>, Option<String>))| {
                let env: Vec<Value> = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
                let mut container = json!({ "name": name, "env": env });
                if let Some(image) = image {
                    container["image"] = json!(image);
                }
                container
            };
        json!({ "spec": { "containers": containers.into_iter().map(container).collect::<Vec<_>>() } })
    })
}

proptest! {
    #[test]
    fn the_difference_leads_from_old_to_new(old in objects(values()), new in objects(values())) {
        let (old, new) = (Value::Object(old), Value::Object(new));
        prop_assert_eq!(merge_patch(&old, &merge_diff(&old, &new)), new);
    }

    #[test]
    fn any_patch_is_merged_or_refused(base in values(), patch in values()) {
        let _ = strategic(&json!({ "spec": base }), &json!({ "spec": patch }));
    }

    #[test]
    fn merging_twice_is_merging_once(base in templates(), patch in templates()) {
        let once = strategic(&base, &patch).unwrap();
        prop_assert_eq!(strategic(&once, &patch).unwrap(), once);
    }

    #[test]
    fn an_empty_patch_changes_nothing(base in templates()) {
        prop_assert_eq!(strategic(&base, &json!({})).unwrap(), base);
    }
}

/// Elements were looked for one by one: a template with 20,000 variables took minutes.
#[test]
fn long_lists_are_merged_by_their_keys() {
    let variable = |number: usize, value: &str| json!({ "name": format!("E{number}"), "value": value });
    let template = |env: Vec<Value>| json!({ "spec": { "containers": [{ "name": "c", "env": env }] } });
    let base = template((0..3).map(|number| variable(number, "base")).collect());
    let patch = template((1..30_000).chain(1..30_000).map(|number| variable(number, "patch")).collect());
    let merged = strategic(&base, &patch).unwrap();
    let env = merged["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!((env.len(), &env[0], &env[29_999]), (30_000, &variable(0, "base"), &variable(29_999, "patch")));
}
