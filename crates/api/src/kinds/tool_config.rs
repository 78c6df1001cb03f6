//! `MCPToolConfig`: which tools of a server are seen, and under what names.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::Reference;
use crate::schema::set;
use crate::status::ConfigStatus;

/// The object: metadata, spec and status.
pub type MCPToolConfig = Custom<MCPToolConfigSpec>;

impl Kind for MCPToolConfigSpec {
    type Status = ConfigStatus;

    const KIND: &'static str = "MCPToolConfig";
    const ABOUT: &'static str = "Which tools of a server are seen, and under what names.";
    const PLURAL: &'static str = "mcptoolconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["tc", "toolconfig"];
    const COLUMNS: &'static [Column] =
        &[column("Valid", ".status.conditions[?(@.type=='Valid')].status", "string"), AGE];

    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }
}

/// Which tools are seen, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPToolConfigSpec {
    /// The tools that clients see and may call, by the names that they see. Left out, all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = set)]
    pub tools_filter: Vec<String>,
    /// Names and descriptions that clients see instead of the server's, by the server's name of the tool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools_override: BTreeMap<String, ToolOverride>,
}

/// What clients see of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolOverride {
    /// Another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Other hints; those left out stay as the server gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
}

/// Hints about what a tool does, as MCP defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// A title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether it changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// Whether it may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Whether calling it twice does no more than calling it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Whether it reaches beyond its own data, such as the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}
