//! `MCPGroup`: servers that belong together, so that a virtual server can serve them as one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::Reference;
use crate::schema::set;
use crate::status::conditions;

/// The object: metadata, spec and status.
pub type MCPGroup = Custom<MCPGroupSpec>;

impl Kind for MCPGroupSpec {
    type Status = MCPGroupStatus;

    const KIND: &'static str = "MCPGroup";
    const ABOUT: &'static str = "Servers that belong together, so that a virtual server can serve them as one.";
    const PLURAL: &'static str = "mcpgroups";
    const SHORT_NAMES: &'static [&'static str] = &["mcpg", "mcpgroup"];
    const COLUMNS: &'static [Column] = &[
        column("Servers", ".status.serverCount", "integer"),
        column("Proxies", ".status.remoteProxyCount", "integer"),
        column("Phase", ".status.phase", "string"),
        column("Checked", ".status.conditions[?(@.type=='MCPServersChecked')].status", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }
}

/// What the group is for. Its members name it, not the other way round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPGroupSpec {
    /// What the group is for; for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What is known about an MCPGroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPGroupStatus {
    /// What is known about the group, one aspect each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state in one word.
    #[serde(default)]
    pub phase: MCPGroupPhase,
    /// Names of the MCPServers in the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = set)]
    pub servers: Vec<String>,
    /// How many MCPServers are in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_count: Option<i32>,
    /// Names of the MCPRemoteProxies in the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = set)]
    pub remote_proxies: Vec<String>,
    /// How many MCPRemoteProxies are in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_proxy_count: Option<i32>,
    /// Names of the MCPServerEntries in the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = set)]
    pub entries: Vec<String>,
    /// How many MCPServerEntries are in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_count: Option<i32>,
}

/// The state of an MCPGroup in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MCPGroupPhase {
    /// Its members are known.
    Ready,
    /// Not reconciled yet.
    #[default]
    Pending,
    /// Its members could not be listed; the conditions say why.
    Failed,
}
