//! `EmbeddingServer`: a server that turns text into vectors, so that a virtual server can find tools by meaning.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::SecretKeyRef;
use crate::reference::{Reference, References};
use crate::schema::{Object, atomic, map_by};
use crate::status::conditions;
use crate::workload::{EnvVar, MetadataOverrides, Resources};

/// The object: metadata, spec and status.
pub type EmbeddingServer = Custom<EmbeddingServerSpec>;

impl Kind for EmbeddingServerSpec {
    type Status = EmbeddingServerStatus;

    const KIND: &'static str = "EmbeddingServer";
    const ABOUT: &'static str =
        "A server that turns text into vectors, so that a virtual server can find tools by meaning.";
    const PLURAL: &'static str = "embeddingservers";
    const SHORT_NAMES: &'static [&'static str] = &["emb", "embedding"];
    const COLUMNS: &'static [Column] = &[
        column("Status", ".status.phase", "string"),
        column("Model", ".spec.model", "string"),
        column("Ready", ".status.readyReplicas", "integer"),
        column("URL", ".status.url", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        if let Some(secret) = &self.hf_token_secret_ref {
            references.secret(secret, "spec.hfTokenSecretRef");
        }
        references.list()
    }
}

/// Which model to serve, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddingServerSpec {
    /// The model's name on Hugging Face.
    #[serde(default = "default_model")]
    pub model: String,
    /// The Secret key with a Hugging Face token, for models that need one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hf_token_secret_ref: Option<SecretKeyRef>,
    /// Image of the inference server.
    #[serde(default = "default_image")]
    pub image: String,
    /// When the image is pulled.
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    /// The port on which it listens.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Further arguments of the inference server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub args: Vec<String>,
    /// Environment of the inference server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = map_by("name"))]
    pub env: Vec<EnvVar>,
    /// Compute resources of its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// A volume that keeps the model between restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_cache: Option<ModelCache>,
    /// Merged into the pod template. The container is named `embedding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_spec: Option<Object>,
    /// Changes to the objects that Skep makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<EmbeddingOverrides>,
    /// How many pods run.
    #[serde(default = "default_replicas")]
    #[schemars(range(min = 1))]
    pub replicas: i32,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Each time.
    Always,
    /// Never: it must be on the node.
    Never,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
}

/// A volume that keeps the model between restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCache {
    /// Whether there is one.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Its storage class. Left out, the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Its size.
    #[serde(default = "default_cache_size")]
    pub size: String,
    /// How it may be mounted.
    #[serde(default)]
    pub access_mode: AccessMode,
}

/// How a volume may be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// By one node, to read and write.
    #[default]
    ReadWriteOnce,
    /// By many nodes, to read and write.
    ReadWriteMany,
    /// By many nodes, to read.
    ReadOnlyMany,
}

/// Changes to the objects that Skep makes for an EmbeddingServer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddingOverrides {
    /// Changes to the StatefulSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful_set: Option<StatefulSetOverrides>,
    /// Changes to the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<MetadataOverrides>,
    /// Changes to the claim of the model's volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<MetadataOverrides>,
}

/// Changes to a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetOverrides {
    /// Labels and annotations on the StatefulSet itself.
    #[serde(flatten)]
    pub metadata: MetadataOverrides,
    /// Labels and annotations on its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_metadata_overrides: Option<MetadataOverrides>,
}

/// What is known about an EmbeddingServer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddingServerStatus {
    /// What is known about the server, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<EmbeddingServerPhase>,
    /// The state in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where the server answers inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How many pods are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
}

/// The state of an EmbeddingServer in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EmbeddingServerPhase {
    /// On its way.
    #[default]
    Pending,
    /// Fetching its model.
    Downloading,
    /// Answering.
    Ready,
    /// Cannot run as written; the conditions say why.
    Failed,
    /// Being deleted.
    Terminating,
}

fn default_model() -> String {
    "BAAI/bge-small-en-v1.5".into()
}

fn default_image() -> String {
    "ghcr.io/huggingface/text-embeddings-inference:cpu-latest".into()
}

fn default_port() -> i32 {
    8080
}

fn default_replicas() -> i32 {
    1
}

fn default_cache_size() -> String {
    "10Gi".into()
}

fn yes() -> bool {
    true
}
