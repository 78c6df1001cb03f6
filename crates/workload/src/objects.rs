//! The objects of a server in a cluster: a StatefulSet and, for an HTTP server, two Services. Pure.
//!
//! Exactly these fields are applied, no more and no fewer: an older proxy may apply the same objects under the same
//! field manager, and a field that only one of them sends would come and go.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use skep_api::annotation::GENERATION;

use crate::server::{Server, Speaks, is_ours};

/// The server's container in its pod.
pub const CONTAINER: &str = "mcp";
/// Set by `kubectl rollout restart`. Preserved, or every start of a proxy would undo a restart.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// The node port range.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;
/// The session affinity timeout of the Service, in seconds.
const AFFINITY_SECONDS: u32 = 1800;

type Object = Map<String, Value>;

/// The platform of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Any other.
    Kubernetes,
    /// OpenShift, which assigns user ids itself and rejects others.
    OpenShift,
}

/// Why a spec is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ObjectError {
    /// The pod template.
    #[error("the pod template patch (--k8s-pod-patch) is not a pod template: {0}")]
    Patch(String),
    /// A published port.
    #[error("`{0}` is not a port to publish; write `port` or `hostPort:port`")]
    Publish(String),
}

/// The StatefulSet. `live` is the existing one, if any.
pub fn stateful_set(
    server: &Server,
    namespace: &str,
    platform: Platform,
    live: Option<&Value>,
) -> Result<Value, ObjectError> {
    let mut spec = Map::from_iter([
        ("selector".to_owned(), json!({ "matchLabels": { "app": server.name } })),
        ("serviceName".to_owned(), server.name.clone().into()),
        ("template".to_owned(), template(server, platform, live)?),
    ]);
    spec.extend(server.replicas.map(|replicas| ("replicas".to_owned(), replicas.into())));
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": { "name": server.name, "namespace": namespace, "labels": labels(server) },
        "spec": spec,
    }))
}

/// The Services by name, given the uid of the StatefulSet that owns them. None for a stdio server.
pub fn services(server: &Server, namespace: &str, owner: &str) -> Result<Vec<(String, Value)>, ObjectError> {
    if server.speaks == Speaks::Stdio {
        return Ok(Vec::new());
    }
    let ports = ports(server)?;
    let node_port = ports.iter().any(|(_, node)| node.is_some());
    let port = |(port, node): &(u16, Option<u16>), with_node: bool| {
        let mut object = Map::from_iter([
            ("name".to_owned(), Value::from(format!("port-{port}"))),
            ("port".to_owned(), (*port).into()),
            ("targetPort".to_owned(), (*port).into()),
            ("protocol".to_owned(), "TCP".into()),
        ]);
        object.extend(node.filter(|_| with_node).map(|node| ("nodePort".to_owned(), node.into())));
        object
    };
    let service = |name: String, spec: Value| {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name, "namespace": namespace, "labels": labels(server),
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "name": server.name, "uid": owner,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        });
        (name, object)
    };
    let headless = json!({
        "clusterIP": "None", "type": "ClusterIP", "selector": { "app": server.name },
        "ports": ports.iter().map(|one| port(one, false)).collect::<Vec<_>>(),
    });
    let backend = json!({
        "type": if node_port { "NodePort" } else { "ClusterIP" }, "selector": { "app": server.name },
        "ports": ports.iter().map(|one| port(one, true)).collect::<Vec<_>>(),
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": AFFINITY_SECONDS } },
    });
    Ok(vec![service(server.headless_name(), headless), service(server.service_name(), backend)])
}

/// The generation that a live StatefulSet was applied for, from its annotation.
pub fn live_generation(live: &Value) -> Option<&str> {
    live.pointer("/spec/template/metadata/annotations")?.get(GENERATION)?.as_str()
}

fn labels(server: &Server) -> Value {
    let mut labels: Object = server.labels.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    labels.insert("app".to_owned(), server.name.clone().into());
    labels.insert("toolhive".to_owned(), "true".into());
    Value::Object(labels)
}

fn template(server: &Server, platform: Platform, live: Option<&Value>) -> Result<Value, ObjectError> {
    let (mut metadata, mut spec) = base(&server.patch)?;
    let mut own = take(&mut metadata, "labels");
    if let Value::Object(required) = labels(server) {
        own.extend(required);
    }
    metadata.insert("labels".to_owned(), Value::Object(own));
    let mut annotations = take(&mut metadata, "annotations");
    // Only a proxy may set the generation that it applied: a patch that does would close the gate to all of them.
    annotations.remove(GENERATION);
    if server.generation > 0 {
        annotations.insert(GENERATION.to_owned(), server.generation.to_string().into());
    }
    let restarted = live.and_then(|live| live.pointer("/spec/template/metadata/annotations")?.get(RESTARTED_AT));
    if let Some(restarted) = restarted {
        annotations.insert(RESTARTED_AT.to_owned(), restarted.clone());
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    spec.entry("restartPolicy").or_insert_with(|| "Always".into());
    let mut pod = take(&mut spec, "securityContext");
    fill(&mut pod, json!({ "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000 }));
    fill(&mut pod, json!({ "seccompProfile": { "type": "RuntimeDefault" } }));
    if platform == Platform::OpenShift {
        remove(&mut pod, &["runAsUser", "runAsGroup", "fsGroup"]);
    }
    spec.insert("securityContext".to_owned(), Value::Object(pod));
    let containers = spec.entry("containers").or_insert_with(|| json!([]));
    let Value::Array(containers) = containers else {
        return Err(ObjectError::Patch("spec.containers is not a list".to_owned()));
    };
    let known = containers.iter().position(|container| named(container) == Some(CONTAINER));
    let place = known.unwrap_or_else(|| {
        containers.push(json!({ "name": CONTAINER }));
        containers.len() - 1
    });
    if let Some(Value::Object(container)) = containers.get_mut(place) {
        lay_over(container, server, platform);
    }
    Ok(json!({ "metadata": metadata, "spec": spec }))
}

/// Metadata and spec of the pods from the patch.
fn base(patch: &str) -> Result<(Object, Object), ObjectError> {
    if patch.is_empty() {
        return Ok((Map::new(), Map::new()));
    }
    skep_bounds::json(patch).map_err(|error| ObjectError::Patch(error.to_string()))?;
    // Decoded to its type, so that a wrong type is reported; used as written, so that nothing is lost.
    serde_json::from_str::<k8s_openapi::api::core::v1::PodTemplateSpec>(patch)
        .map_err(|error| ObjectError::Patch(error.to_string()))?;
    let mut patch: Object = serde_json::from_str(patch).map_err(|error| ObjectError::Patch(error.to_string()))?;
    // Only labels and annotations are used in a template's metadata.
    let mut metadata = take(&mut patch, "metadata");
    metadata.retain(|name, _| name == "labels" || name == "annotations");
    Ok((metadata, take(&mut patch, "spec")))
}

fn lay_over(container: &mut Object, server: &Server, platform: Platform) {
    container.insert("image".to_owned(), server.image.clone().into());
    if !server.args.is_empty() {
        let args = container.entry("args").or_insert_with(|| json!([]));
        if let Value::Array(args) = args {
            args.extend(server.args.iter().cloned().map(Value::from));
        }
    }
    container.insert("stdin".to_owned(), (server.speaks == Speaks::Stdio).into());
    container.insert("tty".to_owned(), false.into());
    let env = variables(container.remove("env"), server);
    if !env.is_empty() {
        container.insert("env".to_owned(), Value::Array(env));
    }
    if let Speaks::Sse(port) = server.speaks {
        let ports = with_port(container.remove("ports"), port);
        container.insert("ports".to_owned(), Value::Array(ports));
    }
    let mut security = take(container, "securityContext");
    fill(&mut security, json!({ "privileged": false, "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000 }));
    fill(&mut security, json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true }));
    fill(&mut security, json!({ "seccompProfile": { "type": "RuntimeDefault" }, "capabilities": { "drop": ["ALL"] } }));
    if platform == Platform::OpenShift {
        remove(&mut security, &["runAsUser", "runAsGroup"]);
    }
    container.insert("securityContext".to_owned(), Value::Object(security));
}

/// The patch's variables, then ours sorted by name. Each name once: the address that the server listens on is ours,
/// anything else is the patch's, of which the last one counts.
fn variables(patch: Option<Value>, server: &Server) -> Vec<Value> {
    let ours = server.variables();
    let mut env: Vec<Value> = match patch {
        Some(Value::Array(env)) => env,
        _ => Vec::new(),
    };
    env.retain(|variable| !named(variable).is_some_and(is_ours));
    keep_last(&mut env);
    let given: BTreeSet<String> = env.iter().filter_map(|one| named(one).map(str::to_owned)).collect();
    env.extend(
        ours.iter()
            .filter(|(name, _)| !given.contains(*name))
            .map(|(name, value)| json!({ "name": name, "value": value })),
    );
    env
}

/// The patch's ports, and ours unless it is among them. The API server rejects an apply with duplicates.
fn with_port(patch: Option<Value>, port: u16) -> Vec<Value> {
    let mut ports: Vec<Value> = match patch {
        Some(Value::Array(ports)) => ports,
        _ => Vec::new(),
    };
    let is_tcp = |one: &Value| one.get("protocol").and_then(Value::as_str).is_none_or(|protocol| protocol == "TCP");
    if !ports.iter().any(|one| is_tcp(one) && one.get("containerPort").and_then(Value::as_u64) == Some(port.into())) {
        ports.push(json!({ "containerPort": port, "protocol": "TCP" }));
    }
    ports
}

/// Keeps the last of entries with the same name, as a kubelet does. The API server rejects an apply with duplicates.
fn keep_last(list: &mut Vec<Value>) {
    let mut seen = BTreeSet::new();
    list.reverse();
    list.retain(|one| named(one).is_none_or(|name| seen.insert(name.to_owned())));
    list.reverse();
}

/// The ports to serve: each container port once, with the node port where the user set one.
fn ports(server: &Server) -> Result<Vec<(u16, Option<u16>)>, ObjectError> {
    let mut ports: Vec<(u16, Option<u16>)> = server.speaks.port().map(|port| (port, None)).into_iter().collect();
    for text in &server.publish {
        let wrong = || ObjectError::Publish(text.clone());
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
        let (port, node) = match text.rsplit_once(':') {
            None => (number(text)?, None),
            Some((host, port)) => {
                let host = host.rsplit(':').next().unwrap_or(host);
                (number(port)?, Some(number(host)?).filter(|host| NODE_PORTS.contains(host)))
            }
        };
        match ports.iter_mut().find(|(known, _)| *known == port) {
            Some((_, known)) => *known = known.or(node),
            None => ports.push((port, node)),
        }
    }
    ports.sort_unstable();
    Ok(ports)
}

fn named(value: &Value) -> Option<&str> {
    value.get("name")?.as_str()
}

/// Removes an object from an object; an empty one if there is none.
fn take(object: &mut Object, name: &str) -> Object {
    match object.remove(name) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    }
}

fn fill(object: &mut Object, defaults: Value) {
    if let Value::Object(defaults) = defaults {
        for (name, value) in defaults {
            let known = object.entry(name).or_insert(Value::Null);
            if known.is_null() {
                *known = value;
            }
        }
    }
}

fn remove(object: &mut Object, names: &[&str]) {
    for name in names {
        object.remove(*name);
    }
}

#[cfg(test)]
mod tests;
