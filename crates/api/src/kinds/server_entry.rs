//! `MCPServerEntry`: a remote MCP server that a virtual server may use, without a pod of its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::{CaBundleRef, NameRef, Reference, References, RequiredNameRef};
use crate::resource::KindName;
use crate::status::conditions;
use crate::workload::{HeaderForward, RemoteTransport, header_references};

/// The object: metadata, spec and status.
pub type MCPServerEntry = Custom<MCPServerEntrySpec>;

impl Kind for MCPServerEntrySpec {
    type Status = MCPServerEntryStatus;

    const KIND: &'static str = "MCPServerEntry";
    const ABOUT: &'static str = "A remote MCP server that a virtual server may use, without a pod of its own.";
    const PLURAL: &'static str = "mcpserverentries";
    const SHORT_NAMES: &'static [&'static str] = &["mcpentry"];
    const COLUMNS: &'static [Column] = &[
        column("Phase", ".status.phase", "string"),
        column("Transport", ".spec.transport", "string"),
        column("Remote URL", ".spec.remoteUrl", "string"),
        column("Group", ".spec.groupRef.name", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        let mut references = References::default();
        references.kind(KindName::MCPGroup, &self.group_ref.name, "spec.groupRef");
        if let Some(reference) = &self.external_auth_config_ref {
            references.kind(KindName::MCPExternalAuthConfig, &reference.name, "spec.externalAuthConfigRef");
        }
        header_references(self.header_forward.as_ref(), &mut references);
        references.ca_bundle(self.ca_bundle_ref.as_ref(), "spec.caBundleRef");
        references.list()
    }
}

/// Which remote server, and how to reach it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPServerEntrySpec {
    /// URL of the remote server.
    #[schemars(regex(pattern = r"^https?://"))]
    pub remote_url: String,
    /// Whether the URL may lead to a private or cluster-internal address.
    #[serde(default)]
    pub allow_private_endpoint: bool,
    /// How the remote server speaks MCP.
    pub transport: RemoteTransport,
    /// The MCPGroup that this entry belongs to.
    pub group_ref: RequiredNameRef,
    /// The MCPExternalAuthConfig with which the virtual server authenticates to the remote server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<NameRef>,
    /// Headers to put on every request to the remote server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_forward: Option<HeaderForward>,
    /// Certificate authorities to trust for the remote server, beside the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
}

/// What is known about an MCPServerEntry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPServerEntryStatus {
    /// What is known about the entry, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in one word.
    #[serde(default)]
    pub phase: MCPServerEntryPhase,
}

/// The state of an MCPServerEntry in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MCPServerEntryPhase {
    /// Can be used.
    Valid,
    /// Not reconciled yet.
    #[default]
    Pending,
    /// Cannot be used; the conditions say why.
    Failed,
}
