//! `MCPAuthzConfig`: an authorization policy that several workloads share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom::{AGE, Column, Custom, Kind, column};
use crate::reference::Reference;
use crate::schema::Object;
use crate::status::ConfigStatus;

/// The object: metadata, spec and status.
pub type MCPAuthzConfig = Custom<MCPAuthzConfigSpec>;

impl Kind for MCPAuthzConfigSpec {
    type Status = ConfigStatus;

    const KIND: &'static str = "MCPAuthzConfig";
    const ABOUT: &'static str = "An authorization policy that several workloads share.";
    const PLURAL: &'static str = "mcpauthzconfigs";
    const SHORT_NAMES: &'static [&'static str] = &["authzcfg"];
    const COLUMNS: &'static [Column] = &[
        column("Type", ".spec.type", "string"),
        column("Valid", ".status.conditions[?(@.type=='Valid')].status", "string"),
        AGE,
    ];

    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }
}

/// The policy, in the syntax of its engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPAuthzConfigSpec {
    /// The engine: `cedarv1` for Cedar policies, `httpv1` for an HTTP decision point.
    #[serde(rename = "type")]
    #[schemars(length(min = 1))]
    pub engine: String,
    /// The engine's own configuration.
    pub config: Object,
}
