//! The facts that the store keeps of a child, extracted from the whole object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use skep_api::annotation::UPSTREAM;
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;
use skep_plan::error::owner_text;
use skep_plan::kinds::Backend;
use skep_plan::pod::{CONSUMED, GENERATION};
use skep_plan::world::{Failure, LiveWorkload, RolloutProgress, UpstreamReport};

use crate::object::owned_fields;

/// What is remembered of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildFacts {
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Changes exactly when another manager changed a field of ours: not with its status, nor with fields of others.
    pub version: String,
    /// Its owner.
    pub owner: Option<Owner>,
    /// The server that it was made for by its proxy, if it was.
    pub serves: Option<String>,
    /// What a proxy reports on it of the connection to the MCP server.
    pub upstream: Option<UpstreamReport>,
    /// How it runs, for a Deployment or StatefulSet.
    pub workload: Option<LiveWorkload>,
}

/// The controller of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The API version in which it is named.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

// === impl ChildFacts ===

impl ChildFacts {
    /// Whether it is the StatefulSet that the proxy of an MCPServer runs its server in: owned by it, or made for it and not owned yet.
    /// Its name alone says nothing: a StatefulSet of another owner may have it.
    pub fn is_backend_of(&self, server: &str, uid: Option<&str>) -> bool {
        match &self.owner {
            Some(owner) => Some(owner.uid.as_str()) == uid,
            None => self.serves.as_deref() == Some(server),
        }
    }

    /// Its owner, for messages.
    pub fn owner_text(&self) -> String {
        match &self.owner {
            Some(owner) => owner_text(&owner.kind, &owner.name),
            None => "an object without an owner".to_owned(),
        }
    }
}

/// What is worth remembering of a child, given as its metadata and, for workloads, the rest of it.
pub fn child_facts(kind: ChildKind, metadata: &ObjectMeta, object: Option<&Value>) -> ChildFacts {
    let resource_version = metadata.resource_version.clone().unwrap_or_default();
    let version = owned_fields(metadata);
    let owner =
        metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)).map(|owner| Owner {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        });
    let workload = object.filter(|_| kind.has_generation()).map(|object| {
        let number = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok())
        };
        let stamp = object
            .pointer("/spec/template/metadata/annotations")
            .and_then(|all| all.get(GENERATION))
            .and_then(Value::as_str);
        LiveWorkload {
            name: metadata.name.clone().unwrap_or_default(),
            is_paused: object.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or_default(),
            replicas: number("/spec/replicas").unwrap_or(1),
            ready: number("/status/readyReplicas").unwrap_or_default(),
            generation_stamp: stamp.and_then(|stamp| stamp.parse().ok()),
            consumed: metadata.annotations.as_ref().and_then(|all| all.get(CONSUMED)).cloned(),
            ours: owner.as_ref().is_some_and(|owner| KindName::parse(&owner.kind).is_some()),
            generation: metadata.generation.unwrap_or_default(),
            progress: progress(kind, object),
            upstream: upstream(metadata),
            ended: Vec::new(),
            hanging: Vec::new(),
        }
    });
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(Backend::OWNER_LABEL));
    let serves = label.filter(|_| kind == Backend::KIND).cloned();
    let uid = metadata.uid.clone().unwrap_or_default();
    ChildFacts { uid, resource_version, version, owner, serves, upstream: upstream(metadata), workload }
}

/// How far the controller of a workload has brought it, as its status says.
fn progress(kind: ChildKind, object: &Value) -> RolloutProgress {
    let field = |name: &str| object.get("status").and_then(|status| status.get(name));
    let number = |name: &str| field(name).and_then(Value::as_i64).unwrap_or_default();
    let count = |name: &str| i32::try_from(number(name)).unwrap_or(i32::MAX);
    let condition = |name: &str, status: &str| {
        let mut all = field("conditions").and_then(Value::as_array).into_iter().flatten();
        all.find(|one| {
            one.get("type").is_some_and(|kind| kind == name) && one.get("status").is_some_and(|is| is == status)
        })
    };
    let text =
        |condition: &Value, name: &str| condition.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let unprogressed = condition("Progressing", "False");
    let is_overdue = unprogressed.is_some_and(|one| text(one, "reason") == Failure::OVERDUE);
    let failed = condition("ReplicaFailure", "True").or(unprogressed);
    let completed = condition("Progressing", "True").is_some_and(|one| text(one, "reason") == "NewReplicaSetAvailable");
    let revision = field("updateRevision").and_then(Value::as_str).map(str::to_owned);
    RolloutProgress {
        observed_generation: number("observedGeneration"),
        total: count("replicas"),
        updated: count("updatedReplicas"),
        revision: revision.filter(|_| kind == ChildKind::StatefulSet),
        completed,
        failure: failed.map(|one| Failure {
            reason: text(one, "reason"),
            message: text(one, "message"),
            is_first: false,
        }),
        is_overdue,
    }
}

/// What the proxy in front of a backend reports of it.
fn upstream(metadata: &ObjectMeta) -> Option<UpstreamReport> {
    serde_json::from_str(metadata.annotations.as_ref()?.get(UPSTREAM)?).ok()
}
