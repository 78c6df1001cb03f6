//! Children: the objects that the operator makes for a resource.

use std::fmt;

use serde_json::{Map, Value, json};
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::Resource;

/// The label by which the operator finds what it made.
pub const MANAGED_LABEL: (&str, &str) = ("toolhive.stacklok.io/managed-by", "toolhive-operator");

/// The kinds of children. The operator applies, watches and prunes exactly these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// The identity of a pod.
    ServiceAccount,
    /// Its permissions.
    Role,
    /// The grant of its permissions.
    RoleBinding,
    /// What it reads.
    ConfigMap,
    /// Where it is reached.
    Service,
    /// Pods that are all alike.
    Deployment,
    /// Pods that keep their names and volumes.
    StatefulSet,
}

/// A finished object, ready to be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    kind: ChildKind,
    name: String,
    body: Value,
}

// === impl ChildKind ===

impl ChildKind {
    /// Every kind, in the order in which children are applied: what is referred to comes first.
    pub const ALL: &'static [Self] = &[
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::ConfigMap,
        Self::Service,
        Self::Deployment,
        Self::StatefulSet,
    ];

    /// API group (empty for the core), version and plural.
    pub const fn api(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ServiceAccount => ("", "v1", "serviceaccounts"),
            Self::Role => ("rbac.authorization.k8s.io", "v1", "roles"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "rolebindings"),
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::Service => ("", "v1", "services"),
            Self::Deployment => ("apps", "v1", "deployments"),
            Self::StatefulSet => ("apps", "v1", "statefulsets"),
        }
    }

    /// As manifests spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
        }
    }

    /// Whether the API server counts its generations.
    pub const fn has_generation(self) -> bool {
        matches!(self, Self::Deployment | Self::StatefulSet)
    }

    /// Its API group and version, as an object names them.
    pub fn api_version(self) -> String {
        let (group, version, _) = self.api();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }
}

impl fmt::Display for ChildKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The reference that makes a resource the controller of an object.
pub fn owner_reference(owner: &Resource) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{STORED_VERSION}"),
        "kind": owner.kind().as_str(),
        "name": owner.name(),
        "uid": owner.metadata().uid.as_deref().unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

// === impl Child ===

impl Child {
    /// Finishes an object: `body` is everything but its identity and its owner, which are put on last.
    pub(crate) fn new(
        owner: &Resource,
        kind: ChildKind,
        name: &str,
        labels: Value,
        annotations: Value,
        body: Value,
    ) -> Self {
        let mut object = match body {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        let mut labels = match labels {
            Value::Object(labels) => labels,
            _ => Map::new(),
        };
        labels.insert(MANAGED_LABEL.0.into(), json!(MANAGED_LABEL.1));
        let mut metadata = json!({
            "name": name,
            "namespace": owner.namespace(),
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
        });
        if let (Some(metadata), Value::Object(annotations)) = (metadata.as_object_mut(), annotations)
            && !annotations.is_empty()
        {
            metadata.insert("annotations".into(), Value::Object(annotations));
        }
        object.insert("apiVersion".into(), json!(kind.api_version()));
        object.insert("kind".into(), json!(kind.as_str()));
        object.insert("metadata".into(), metadata);
        Self { kind, name: name.to_owned(), body: Value::Object(object) }
    }

    /// Its kind.
    pub const fn kind(&self) -> ChildKind {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its metadata, as it is applied.
    pub(crate) fn metadata(&self) -> Option<&Value> {
        self.body.get("metadata")
    }

    /// The whole object, as it is applied.
    pub const fn body(&self) -> &Value {
        &self.body
    }
}
