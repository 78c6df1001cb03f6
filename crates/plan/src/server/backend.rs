//! The backend of a proxy, its MCP server: the pod template that the proxy runs it with.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use skep_api::kinds::MCPServer;
use skep_api::reference::{References, SecretKeyRef};
use skep_api::resource::Resource;

use super::advice;
use crate::inputs::digest_of;
use crate::names;
use crate::overrides::DroppedOverrides;
use crate::pod::{self, GENERATION, INPUTS, Variable};
use crate::proxy::{Backend, ServerTemplate, UserContainer};
use crate::text::{is_newer, is_timestamp};
use crate::world::World;

/// The container of the server; a user's pod template reaches it by this name.
const CONTAINER: &str = "mcp";

/// The server of a spec, for its pods and for a process.
pub(super) fn backend(me: &Resource, object: &MCPServer, world: &World<'_>) -> Backend {
    let (spec, secrets) = (&object.spec, secrets(object));
    let template = spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    let mut container = template.map(|template| UserContainer::of(&template, CONTAINER)).unwrap_or_default();
    let ours = names_of(&secrets);
    container.env.retain(|theirs| !ours.contains(theirs.name.as_str()));
    container.env.extend(secrets.iter().cloned());
    container.volumes.extend(spec.volumes.iter().map(|volume| volume.name.clone()));
    Backend::Server(ServerTemplate { pod: pod_template(me, object, world), container })
}

/// The last restart: the one that is asked for, if it is a time and newer than the one that was done before; else that one. To take the
/// annotation away, or to write nonsense into it, restarts nothing.
pub(super) fn restart_stamp(object: &MCPServer) -> Option<String> {
    let annotations = object.metadata.annotations.as_ref()?;
    let last = annotations.get(advice::LAST_RESTART).filter(|text| is_timestamp(text));
    let asked = annotations.get(advice::RESTARTED_AT);
    let asked = asked.filter(|asked| is_newer(asked, last.map(String::as_str)).unwrap_or(false));
    asked.or(last).cloned()
}

/// The user's pod template for the server, with what the spec says about it: account, secrets and a digest of their values, volumes,
/// restart.
fn pod_template(me: &Resource, object: &MCPServer, world: &World<'_>) -> Value {
    let (spec, secrets) = (&object.spec, secrets(object));
    let ours = names_of(&secrets);
    let mut patch =
        spec.pod_template_spec.as_ref().map_or_else(|| json!({}), |template| Value::Object(template.0.clone()));
    let account = spec.service_account.clone().filter(|account| !account.is_empty());
    let pod = object_at(object_of(&mut patch), "spec");
    pod.insert("serviceAccountName".into(), json!(account.unwrap_or_else(|| names::server_account(me.name()))));
    let env: Vec<Value> = secrets.iter().map(Variable::entry).collect();
    let mounts: Vec<Value> = spec
        .volumes
        .iter()
        .map(|volume| json!({ "name": volume.name, "mountPath": volume.mount_path, "readOnly": volume.read_only }))
        .collect();
    let volumes: Vec<Value> = spec
        .volumes
        .iter()
        .map(|volume| json!({ "name": volume.name, "hostPath": { "path": volume.host_path } }))
        .collect();
    append(pod, "volumes", volumes);
    let containers = list_at(pod, "containers");
    if !env.is_empty() || !mounts.is_empty() {
        if !containers.iter().any(|container| container.get("name").is_some_and(|name| name == CONTAINER)) {
            containers.push(json!({ "name": CONTAINER, "resources": {} }));
        }
        let server =
            containers.iter_mut().find(|container| container.get("name").is_some_and(|name| name == CONTAINER));
        if let Some(server) = server {
            let server = object_of(server);
            if let Some(Value::Array(theirs)) = server.get_mut("env") {
                // An apply with the same name twice would be refused; what comes later counts.
                theirs.retain(|one| one.get("name").and_then(Value::as_str).is_none_or(|name| !ours.contains(name)));
            }
            append(server, "env", env);
            append(server, "volumeMounts", mounts);
        }
    }
    let metadata = object_at(object_of(&mut patch), "metadata");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        // The proxy stamps its own generation on the backend; a user's would close the gate to it.
        annotations.remove(GENERATION);
    }
    // A container reads its variables once: with another value of a Secret, another pod must take its place.
    if let Some(digest) = digest_of_secrets(me, object, world) {
        object_at(metadata, "annotations").insert(INPUTS.to_owned(), json!(digest));
    }
    if let Some(at) = restart_stamp(object) {
        object_at(metadata, "annotations").insert(advice::RESTARTED_AT.to_owned(), json!(at));
    }
    patch
}

/// The variables that `spec.secrets` gives to the server.
fn secrets(object: &MCPServer) -> Vec<Variable> {
    let secrets = object.spec.secrets.iter();
    secrets
        .map(|secret| {
            let variable = secret.target_env_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&secret.key);
            Variable::secret(variable, &secret.name, &secret.key)
        })
        .collect()
}

/// Digest of the values that `spec.secrets` gives to the server; none if it gives none.
fn digest_of_secrets(me: &Resource, object: &MCPServer, world: &World<'_>) -> Option<String> {
    let mut references = References::default();
    for secret in &object.spec.secrets {
        let key = SecretKeyRef { name: secret.name.clone(), key: secret.key.clone() };
        references.secret(&key, "spec.secrets");
    }
    digest_of(me, &references.list(), world)
}

/// The names of variables. Both lists can be as long as an object, so names are not compared one by one.
fn names_of(variables: &[Variable]) -> BTreeSet<&str> {
    variables.iter().map(|variable| variable.name.as_str()).collect()
}

/// Reports annotations of the user's pod template that [`pod_template`] leaves out or replaces.
pub(super) fn report_stamps(object: &MCPServer, dropped: &mut DroppedOverrides) {
    let template = object.spec.pod_template_spec.as_ref().map(|template| Value::Object(template.0.clone()));
    let annotations = template.map(|template| pod::texts(&template, "annotations")).unwrap_or_default();
    let restart = restart_stamp(object);
    for (name, value) in &annotations {
        let is_restart = name == advice::RESTARTED_AT && restart.as_ref().is_some_and(|stamp| stamp != value);
        let is_digest = name == INPUTS && !object.spec.secrets.is_empty();
        if name == GENERATION || is_restart || is_digest {
            dropped.add(&format!("{}.annotations", pod::POD_TEMPLATE_METADATA), name);
        }
    }
}

fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("it was made an object just now"))
}

fn object_at<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    object_of(object.entry(name).or_insert_with(|| json!({})))
}

fn list_at<'a>(object: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let list = object.entry(name).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().unwrap_or_else(|| unreachable!("it was made a list just now"))
}

fn append(object: &mut Map<String, Value>, name: &str, entries: Vec<Value>) {
    if !entries.is_empty() {
        list_at(object, name).extend(entries);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skep_api::resource::KindName;

    use super::*;
    use crate::key::{Key, ObjectKind};
    use crate::validate::testing::{Surroundings, resource};
    use crate::world::Found;

    #[test]
    fn a_secret_takes_the_place_of_a_variable_of_the_same_name_in_the_pod_template() {
        let env = json!([{ "name": "TOKEN", "value": "in the open" }, { "name": "OTHER", "value": "o" }]);
        let spec = json!({
            "image": "i",
            "secrets": [{ "name": "s", "key": "token", "targetEnvName": "TOKEN" }],
            "podTemplateSpec": { "spec": { "containers": [{ "name": "mcp", "env": env }] } },
        });
        let me = resource(KindName::MCPServer, "s", &spec);
        let Resource::MCPServer(object) = &me else { unreachable!("it was made one") };
        let wanted = json!([
            { "name": "OTHER", "value": "o" },
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "token" } } },
        ]);
        let surroundings = Surroundings::default();
        assert_eq!(pod_template(&me, object, &surroundings.world())["spec"]["containers"][0]["env"], wanted);
    }

    #[test]
    fn a_new_value_of_a_secret_replaces_the_pods_of_the_server() {
        let digest = |secret: &str, value: &str| {
            let mut surroundings = Surroundings::default();
            let key = Key { kind: ObjectKind::Secret, namespace: "ns".into(), name: secret.into() };
            surroundings.found.insert(key, Found::Secret(Arc::new([("token".to_owned(), value.to_owned())].into())));
            let theirs = json!({ "metadata": { "annotations": { INPUTS: "theirs" } } });
            let secrets = json!([{ "name": "s", "key": "token", "targetEnvName": "TOKEN" }]);
            let spec = json!({ "image": "i", "secrets": secrets, "podTemplateSpec": theirs });
            let me = resource(KindName::MCPServer, "s", &spec);
            let Resource::MCPServer(object) = &me else { unreachable!("it was made one") };
            let mut dropped = DroppedOverrides::default();
            report_stamps(object, &mut dropped);
            assert_eq!(dropped.listed().len(), 1, "{dropped:?}");
            pod_template(&me, object, &surroundings.world())["metadata"]["annotations"][INPUTS].clone()
        };
        assert_eq!(digest("s", "one"), digest("s", "one"));
        assert_ne!(digest("s", "one"), digest("s", "two"));
        assert_eq!(digest("other", "one"), digest("other", "two"), "the server does not read it");
    }
}
