//! Authorization written at its place of use: Cedar policies in a ConfigMap, or right in the manifest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::{References, RequiredNameRef};
use crate::resource::KindName;
use crate::schema::{Rule, atomic, rules};

const AUTHZ_CONFIG_RULES: &[Rule] = &[
    Rule {
        cel: "(self.type == 'configMap') == has(self.configMap)",
        message: "authzConfig.configMap goes with type configMap, and only with it: set configMap, or change type",
    },
    Rule {
        cel: "(self.type == 'inline') == has(self.inline)",
        message: "authzConfig.inline goes with type inline, and only with it: set inline, or change type",
    },
];

/// The policies that decide what a client may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    extend("required" = ["type"]),
    transform = rules(AUTHZ_CONFIG_RULES)
)]
pub struct AuthzConfig {
    /// Where the policies are.
    #[serde(default, rename = "type")]
    pub source: AuthzSource,
    /// The ConfigMap with an authorization document; for type `configMap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<AuthzConfigMap>,
    /// Policies written here; for type `inline`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineAuthz>,
    /// The token claim that lists the client's groups. Left out, the usual names are tried in turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub group_claim_name: Option<String>,
    /// The token claim that lists the client's roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub role_claim_name: Option<String>,
    /// The Cedar entity type that stands for a group in the policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub group_entity_type: Option<String>,
}

/// Where authorization policies are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AuthzSource {
    /// In a ConfigMap.
    #[default]
    ConfigMap,
    /// In the manifest itself.
    Inline,
}

/// A ConfigMap that holds an authorization document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthzConfigMap {
    /// Name of the ConfigMap.
    pub name: String,
    /// Key inside it.
    #[serde(default = "authz_key")]
    pub key: String,
}

/// Cedar policies and the entities that they name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InlineAuthz {
    /// Cedar policies, one a string. What no policy permits is refused.
    #[schemars(length(min = 1), transform = atomic)]
    pub policies: Vec<String>,
    /// Cedar entities as a JSON array.
    #[serde(default = "no_entities")]
    pub entities_json: String,
    /// The upstream provider whose claims the policies see, where the embedded authorization server knows several.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"))]
    pub primary_upstream_provider: Option<String>,
}

/// What authorization settings refer to: the ConfigMap of the one, the MCPAuthzConfig of the other.
pub(crate) fn authz_references(
    in_place: Option<&AuthzConfig>,
    shared: Option<&RequiredNameRef>,
    path: &str,
    references: &mut References,
) {
    if let Some(map) = in_place.and_then(|authz| authz.config_map.as_ref()) {
        references.document(&map.name, &map.key, &format!("{path}.authzConfig.configMap"));
    }
    if let Some(reference) = shared {
        references.kind(KindName::MCPAuthzConfig, &reference.name, &format!("{path}.authzConfigRef"));
    }
}

fn authz_key() -> String {
    "authz.json".into()
}

fn no_entities() -> String {
    "[]".into()
}
