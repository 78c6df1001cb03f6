//! `MCPRegistry`: a registry server of ToolHive's. Deprecated, and kept so that existing ones go on working.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{LocalKeyRef, LocalNameRef, Reference, References, SecretKeyRef};
use crate::schema::{Any, Object, atomic, keep_unknown};
use crate::status::conditions;

/// The object: metadata, spec and status.
pub type MCPRegistry = Custom<MCPRegistrySpec>;

impl Kind for MCPRegistrySpec {
    type Status = MCPRegistryStatus;

    const KIND: &'static str = "MCPRegistry";
    const ABOUT: &'static str =
        "A registry server of ToolHive's. Deprecated, and kept so that existing ones go on working.";
    const PLURAL: &'static str = "mcpregistries";
    const SHORT_NAMES: &'static [&'static str] = &["mcpreg", "registry"];
    const COLUMNS: &'static [Column] = &[
        column("Status", ".status.phase", "string"),
        column("Ready", ".status.conditions[?(@.type=='Ready')].status", "string"),
        column("Replicas", ".status.readyReplicas", "integer"),
        column("URL", ".status.url", "string"),
        AGE,
    ];
    const DEPRECATED: Option<&'static str> = Some("MCPRegistry is deprecated; run the registry server on its own");

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        if let Some(secret) = &self.pgpass_secret_ref {
            let secret_key = SecretKeyRef { name: secret.name.clone(), key: secret.key.clone() };
            references.secret(&secret_key, "spec.pgpassSecretRef");
        }
        references.list()
    }
}

/// The registry server's configuration and pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPRegistrySpec {
    /// The registry server's own configuration file, as YAML.
    #[serde(rename = "configYAML")]
    #[schemars(length(min = 1))]
    pub config_yaml: String,
    /// Further volumes of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic, transform = keep_unknown)]
    pub volumes: Vec<Any>,
    /// Where those volumes are mounted in the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic, transform = keep_unknown)]
    pub volume_mounts: Vec<Any>,
    /// The Secret key with a PostgreSQL password file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgpass_secret_ref: Option<LocalKeyRef>,
    /// The registry's name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Merged into the pod template. The container is named `registry-api`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_spec: Option<Object>,
    /// Secrets with which the image is pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub image_pull_secrets: Vec<LocalNameRef>,
}

/// What is known about an MCPRegistry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPRegistryStatus {
    /// What is known about the registry, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<MCPRegistryPhase>,
    /// The state in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where the registry answers inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How many pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
}

/// The state of an MCPRegistry in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MCPRegistryPhase {
    /// On its way.
    #[default]
    Pending,
    /// Answering.
    Ready,
    /// Cannot run as written; the conditions say why.
    Failed,
    /// Being deleted.
    Terminating,
}
