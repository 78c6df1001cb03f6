//! What is worth remembering of a child or a pod: a few words each, taken from the whole object.

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use skep_api::resource::KindName;
use skep_plan::canonical;
use skep_plan::child::ChildKind;
use skep_plan::key::Key;
use skep_plan::pod::{CONSUMED, GENERATION};
use skep_plan::world::{LiveWorkload, PodState};

/// States of a waiting container from which it does not come back by itself.
const HOPELESS: &[&str] =
    &["CrashLoopBackOff", "CreateContainerError", "CreateContainerConfigError", "InvalidImageName"];

/// What is remembered of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildFacts {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Changes exactly when somebody changed what we may have written: not with its status.
    pub version: String,
    /// Who owns it.
    pub owner: Option<Owner>,
    /// The server that it was made for by its proxy, if it was.
    pub serves: Option<String>,
    /// How it runs, for a Deployment or StatefulSet.
    pub workload: Option<LiveWorkload>,
}

/// The controller of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What is remembered of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// The resource that it runs for.
    pub owner: Key,
    /// How it is; nothing for one that is on its way out.
    pub state: Option<PodState>,
}

/// What is worth remembering of a child, given as its metadata and, for workloads, the rest of it.
pub fn child_facts(kind: ChildKind, metadata: &ObjectMeta, object: Option<&Value>) -> ChildFacts {
    let resource_version = metadata.resource_version.clone().unwrap_or_default();
    let version = if kind.has_generation() {
        let written = serde_json::json!([metadata.labels, metadata.annotations, metadata.owner_references]);
        format!(
            "{}/{}",
            metadata.generation.unwrap_or_default(),
            canonical::sha256_hex(canonical::to_string(&written).as_bytes())
        )
    } else {
        resource_version.clone()
    };
    let owner = metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
        .map(|owner| Owner { kind: owner.kind.clone(), name: owner.name.clone(), uid: owner.uid.clone() });
    let workload = object.filter(|_| kind.has_generation()).map(|object| {
        let number = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok())
        };
        let stamp = object
            .pointer("/spec/template/metadata/annotations")
            .and_then(|all| all.get(GENERATION))
            .and_then(Value::as_str);
        LiveWorkload {
            replicas: number("/spec/replicas").unwrap_or(1),
            ready: number("/status/readyReplicas").unwrap_or_default(),
            generation_stamp: stamp.and_then(|stamp| stamp.parse().ok()),
            consumed: metadata.annotations.as_ref().and_then(|all| all.get(CONSUMED)).cloned(),
            ours: owner.as_ref().is_some_and(|owner| KindName::parse(&owner.kind).is_some()),
        }
    });
    let label = metadata.labels.as_ref().and_then(|labels| labels.get("toolhive-name"));
    let serves = label.filter(|_| kind == ChildKind::StatefulSet).cloned();
    ChildFacts { uid: metadata.uid.clone().unwrap_or_default(), resource_version, version, owner, serves, workload }
}

/// What is worth remembering of a pod; nothing if it runs for none of our resources.
pub fn pod_facts(pod: &Pod) -> Option<PodFacts> {
    let metadata = &pod.metadata;
    let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let kind = |label: &String| match label.as_str() {
        "mcpserver" => Some(KindName::MCPServer),
        "mcpremoteproxy" => Some(KindName::MCPRemoteProxy),
        "virtualmcpserver" => Some(KindName::VirtualMCPServer),
        "embeddingserver" => Some(KindName::EmbeddingServer),
        _ => None,
    };
    // The first may be a user's own, where we do not set it.
    let kind = ["app", "app.kubernetes.io/name"].iter().find_map(|name| label(name).and_then(kind))?;
    let name = label("app.kubernetes.io/instance")?;
    let owner = Key::resource(kind, metadata.namespace.as_deref()?, name);
    let state = metadata.deletion_timestamp.is_none().then(|| pod_state(pod));
    Some(PodFacts { name: metadata.name.clone()?, owner, state })
}

fn pod_state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else { return PodState::Pending };
    let containers = status.container_statuses.iter().flatten();
    for container in containers {
        if let Some(reason) = container.state.as_ref().and_then(hopeless) {
            return PodState::Failed(reason);
        }
    }
    match status.phase.as_deref() {
        Some("Failed") => PodState::Failed(status.reason.clone().unwrap_or_else(|| "PodFailed".into())),
        _ if status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True") => {
            PodState::Ready
        }
        _ => PodState::Pending,
    }
}

fn hopeless(state: &ContainerState) -> Option<String> {
    let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
    if let Some(reason) = waiting.filter(|reason| HOPELESS.contains(&reason.as_str())) {
        return Some(reason);
    }
    let terminated = state.terminated.as_ref().filter(|terminated| terminated.exit_code != 0)?;
    Some(terminated.reason.clone().unwrap_or_else(|| format!("exit code {}", terminated.exit_code)))
}
