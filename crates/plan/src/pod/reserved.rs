//! What of a pod template is the operator's own, and is put back once the user's pod template was merged in: its container, the
//! variables that it stamps there, the volumes of its configuration and where they are mounted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{Env, Variable};
use crate::overrides::{DroppedOverrides, POD_TEMPLATE};

/// The operator's part of a pod template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reserved {
    container: Value,
    env: Vec<Value>,
    mounts: Vec<Value>,
    volumes: Vec<Value>,
}

// === impl Reserved ===

impl Reserved {
    /// The operator's part of a pod spec that it made: of one container these variables and all mounts, and all volumes.
    pub(super) fn of(pod: &Value, container: &str, env: &Env) -> Option<Self> {
        let container = entries(pod, "containers").iter().find(|one| is_named(one, container))?;
        let mounts = entries(container, "volumeMounts").to_vec();
        let volumes = entries(pod, "volumes").to_vec();
        Some(Self { container: container.clone(), env: env.stamped().map(Variable::entry).collect(), mounts, volumes })
    }

    /// Puts all of it back into a finished template, and adds what had to give way.
    pub(super) fn restore(&self, template: &mut Value, dropped: &mut DroppedOverrides) {
        let name = self.container.get("name").and_then(Value::as_str).unwrap_or_default();
        let pod = object(object(template).entry("spec").or_insert_with(|| json!({})));
        let field = format!("{POD_TEMPLATE}.spec");
        let containers = list(pod, "containers");
        if !containers.iter().any(|one| is_named(one, name)) {
            containers.insert(0, self.container.clone());
            dropped.add(&format!("{field}.containers"), name);
        }
        let container = containers.iter_mut().find(|one| is_named(one, name));
        if let Some(container) = container.map(object) {
            let field = format!("{field}.containers[{name}]");
            restore_all(list(container, "env"), "name", &self.env, &format!("{field}.env"), dropped);
            let (mounts, field) = (list(container, "volumeMounts"), format!("{field}.volumeMounts"));
            let ours: BTreeMap<Vec<&str>, &Value> =
                self.mounts.iter().map(|one| (segments(text(one, "mountPath")), one)).collect();
            let deepest = ours.keys().map(Vec::len).max().unwrap_or_default();
            mounts.retain(|one| {
                let shadows = shadows(one, &ours, deepest);
                if shadows {
                    dropped.add(&field, text(one, "mountPath"));
                }
                !shadows
            });
            restore_all(mounts, "mountPath", &self.mounts, &field, dropped);
        }
        restore_all(list(pod, "volumes"), "name", &self.volumes, &format!("{field}.volumes"), dropped);
    }
}

/// Makes a list hold each of our entries once, as we wrote it. One that is there stays in its place.
fn restore_all(list: &mut Vec<Value>, key: &str, ours: &[Value], field: &str, dropped: &mut DroppedOverrides) {
    let mut there: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for one in list.iter() {
        there.entry(text(one, key).to_owned()).or_default().push(one);
    }
    let is_changed = |entry: &&Value| there.get(text(entry, key)).is_none_or(|there| there.as_slice() != [*entry]);
    let mut changed: BTreeMap<&str, &Value> =
        ours.iter().filter(is_changed).map(|entry| (text(entry, key), entry)).collect();
    if changed.is_empty() {
        return;
    }
    for name in changed.keys() {
        dropped.add(field, name);
    }
    let names: BTreeSet<&str> = changed.keys().copied().collect();
    let mut restored = Vec::new();
    for one in std::mem::take(list) {
        // The first of a name makes room for ours, the others go.
        match text(&one, key) {
            name if names.contains(name) => restored.extend(changed.remove(name).cloned()),
            _ => restored.push(one),
        }
    }
    restored.extend(ours.iter().filter_map(|entry| changed.remove(text(entry, key)).cloned()));
    *list = restored;
}

/// Whether a mount, which is none of ours, hides what one of ours shows: it is at the same path, or below it. `deepest` is the number of
/// segments of our longest path.
fn shadows(mount: &Value, ours: &BTreeMap<Vec<&str>, &Value>, deepest: usize) -> bool {
    let path = segments(text(mount, "mountPath"));
    if ours.get(&path).is_some_and(|one| *one == mount) {
        return false;
    }
    (0..=deepest).filter_map(|length| path.get(..length)).any(|above| ours.contains_key(above))
}

/// A path as a container runtime resolves it.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    segments
}

fn is_named(entry: &Value, name: &str) -> bool {
    text(entry, "name") == name
}

fn text<'a>(entry: &'a Value, member: &str) -> &'a str {
    entry.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn entries<'a>(object: &'a Value, member: &str) -> &'a [Value] {
    object.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("it was made an object just now"))
}

fn list<'a>(object: &'a mut Map<String, Value>, member: &str) -> &'a mut Vec<Value> {
    let list = object.entry(member).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().unwrap_or_else(|| unreachable!("it was made a list just now"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::strategic;

    fn template() -> (Value, Reserved) {
        let mut env = Env::new();
        env.value("OURS", "1").secret("KEY", "s", "k").user("spec.env", "THEIRS", "2");
        let pod = json!({
            "containers": [{
                "name": "proxy", "image": "i", "env": env.list(),
                "volumeMounts": [{ "name": "config", "mountPath": "/etc/config", "readOnly": true }],
            }],
            "volumes": [{ "name": "config", "configMap": { "name": "ours" } }],
        });
        let reserved = Reserved::of(&pod, "proxy", &env).unwrap();
        (json!({ "metadata": {}, "spec": pod }), reserved)
    }

    fn patched(patch: &Value) -> (Value, Vec<String>) {
        let (template, reserved) = template();
        let mut dropped = DroppedOverrides::default();
        let mut merged = strategic(&template, patch).unwrap();
        reserved.restore(&mut merged, &mut dropped);
        (merged, dropped.listed())
    }

    #[test]
    fn a_pod_template_that_leaves_ours_alone_is_not_changed() {
        let env = json!([{ "name": "THEIRS", "value": "3" }, { "name": "NEW", "value": "4" }]);
        let mounts =
            json!([{ "name": "config", "mountPath": "/etc" }, { "name": "config", "mountPath": "/etc/configs" }]);
        let container = json!({ "name": "proxy", "image": "other", "env": env, "volumeMounts": mounts });
        let patch = json!({ "spec": { "containers": [container], "volumes": [{ "name": "more", "emptyDir": {} }] } });
        let merged = strategic(&template().0, &patch).unwrap();
        assert_eq!(patched(&patch), (merged, Vec::new()));
    }

    #[test]
    fn changes_of_a_pod_template_to_our_own_fields_are_undone() {
        let container = |members: Value| {
            let mut container = json!({ "name": "proxy" });
            container.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            json!({ "spec": { "containers": [container] } })
        };
        let mount = |path: &str| container(json!({ "volumeMounts": [{ "name": "theirs", "mountPath": path }] }));
        for patch in [
            container(json!({ "env": [{ "name": "OURS", "value": "theirs" }] })),
            container(json!({ "env": [{ "name": "KEY", "value": "theirs" }] })),
            container(json!({ "env": [{ "name": "KEY", "$patch": "delete" }] })),
            container(json!({ "env": [{ "$patch": "replace" }, { "name": "X", "value": "x" }] })),
            container(json!({ "env": null })),
            container(json!({ "$patch": "replace", "image": "i" })),
            container(json!({ "$patch": "delete" })),
            container(json!({ "volumeMounts": null })),
            mount("/etc/config"),
            mount("/etc/config/"),
            mount("/etc/./config/run.json"),
            mount("/etc/x/../config/run.json"),
            json!({ "spec": { "volumes": [{ "name": "config", "configMap": { "name": "theirs" } }] } }),
            json!({ "spec": { "volumes": [{ "name": "config", "$patch": "delete" }] } }),
            json!({ "spec": { "$patch": "replace", "containers": [{ "name": "other" }] } }),
            json!({ "$patch": "replace" }),
            json!({ "spec": null }),
        ] {
            let (merged, dropped) = patched(&patch);
            let pod = &merged["spec"];
            let proxies: Vec<&Value> =
                pod["containers"].as_array().unwrap().iter().filter(|one| one["name"] == "proxy").collect();
            let [proxy] = proxies.as_slice() else { panic!("{merged}") };
            let ours = template().1;
            for (list, ours) in
                [(&proxy["env"], &ours.env), (&proxy["volumeMounts"], &ours.mounts), (&pod["volumes"], &ours.volumes)]
            {
                for entry in ours {
                    assert_eq!(
                        list.as_array().unwrap().iter().filter(|one| *one == entry).count(),
                        1,
                        "{patch}: {list}"
                    );
                }
            }
            let names: Vec<&Value> = proxy["env"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
            assert_eq!(names.iter().filter(|name| **name == "OURS").count(), 1, "{names:?}");
            assert!(
                !dropped.is_empty() && dropped.iter().all(|one| one.starts_with("spec.podTemplateSpec")),
                "{dropped:?}"
            );
        }
    }

    /// Each was compared with each: a thousand mounts of ours and a template as large as an object took seconds.
    #[test]
    fn many_mounts_and_variables_are_put_back() {
        let mount = |number: usize, path: &str| json!({ "name": format!("v{number}"), "mountPath": path });
        let ours: Vec<Value> = (0..3_000).map(|number| mount(number, &format!("/ours/{number}"))).collect();
        let mut theirs: Vec<Value> = (0..6_000).map(|number| mount(number, &format!("/theirs/{number}"))).collect();
        theirs.extend((0..3_000).map(|number| mount(number, &format!("/ours/{number}/../{number}//below"))));
        let reserved =
            Reserved { container: json!({ "name": "c" }), env: Vec::new(), mounts: ours.clone(), volumes: Vec::new() };
        let mut template = json!({ "spec": { "containers": [{ "name": "c", "volumeMounts": theirs }] } });
        let mut dropped = DroppedOverrides::default();
        reserved.restore(&mut template, &mut dropped);
        let mounts = template["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!((mounts.len(), &mounts[0], &mounts[6_000..]), (9_000, &theirs[0], ours.as_slice()));
        assert_eq!(dropped.listed().len(), 6_000);
    }
}
