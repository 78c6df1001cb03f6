//! How one object names another: always by name, always in its own namespace.
//!
//! Every kind lists what it refers to, once ([`References`]). From that one list come resolution, watches, the users in a
//! configuration's status, deletion protection and the hashes in a workload's status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::KindName;
use crate::schema::{atomic, atomic_object};

/// One reference: from a field of one object to another object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// What kind of object it leads to.
    pub to: Target,
    /// The name of that object.
    pub name: String,
    /// The field that holds the reference, such as `spec.oidcConfigRef`.
    pub field: String,
}

/// What a reference can lead to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// An object of one of Skep's kinds.
    Kind(KindName),
    /// A key of a Secret.
    Secret {
        /// The key; empty where the whole Secret is meant.
        key: String,
    },
    /// A key of a ConfigMap that pods read.
    ConfigMap {
        /// The key.
        key: String,
    },
    /// A key of a ConfigMap whose text goes into the plan.
    Document {
        /// The key; empty where it is missing.
        key: String,
    },
}

/// Collects references while a spec is walked.
#[derive(Debug, Default)]
pub struct References(Vec<Reference>);

// === impl References ===

impl References {
    /// A reference to an object of one of Skep's kinds.
    pub fn kind(&mut self, to: KindName, name: &str, field: &str) -> &mut Self {
        self.push(Target::Kind(to), name, field)
    }

    /// A reference to a key of a Secret.
    pub fn secret(&mut self, secret: &SecretKeyRef, field: &str) -> &mut Self {
        self.push(Target::Secret { key: secret.key.clone() }, &secret.name, field)
    }

    /// A reference to a key of a ConfigMap.
    pub fn config_map(&mut self, name: &str, key: &str, field: &str) -> &mut Self {
        self.push(Target::ConfigMap { key: key.to_owned() }, name, field)
    }

    /// A reference to a key of a ConfigMap whose text goes into the plan.
    pub fn document(&mut self, name: &str, key: &str, field: &str) -> &mut Self {
        self.push(Target::Document { key: key.to_owned() }, name, field)
    }

    /// A reference to a bundle of certificate authorities, under the usual key where none is named.
    pub fn ca_bundle(&mut self, bundle: Option<&CaBundleRef>, field: &str) -> &mut Self {
        if let Some(reference) = bundle.and_then(|bundle| bundle.config_map_ref.as_ref()) {
            let key = if reference.key.is_empty() { "ca.crt" } else { &reference.key };
            self.config_map(&reference.name, key, &format!("{field}.configMapRef"));
        }
        self
    }

    /// What was collected, in the order of the fields. Empty names lead nowhere and are left out.
    pub fn list(self) -> Vec<Reference> {
        self.0
    }

    fn push(&mut self, to: Target, name: &str, field: &str) -> &mut Self {
        if !name.is_empty() {
            self.0.push(Reference { to, name: name.to_owned(), field: field.to_owned() });
        }
        self
    }
}

/// Names one key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// Name of the Secret.
    pub name: String,
    /// Key inside the Secret.
    pub key: String,
}

/// Names another object of a kind that the field implies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameRef {
    /// Name of the object.
    pub name: String,
}

/// Names another object; the API server refuses an empty name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequiredNameRef {
    /// Name of the object.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Names the MCPOIDCConfig that says who may call, and what tokens for this server must look like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcConfigRef {
    /// Name of the MCPOIDCConfig.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The audience that a token must carry. Give each server its own, so that a token for one opens no other.
    #[schemars(length(min = 1))]
    pub audience: String,
    /// Scopes that the protected-resource metadata (RFC 9728) advertises and tokens must have. `openid` and the like are not required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(transform = atomic)]
    pub scopes: Vec<String>,
    /// Public URL of this server in the protected-resource metadata. Left out, it is the URL of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_url: Option<String>,
}

/// Names the MCPTelemetryConfig to report to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TelemetryConfigRef {
    /// Name of the MCPTelemetryConfig.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Service name in traces and metrics. Left out, it is the name of this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

/// Names the object that configures an embedded authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["kind", "name"]))]
pub struct AuthServerRef {
    /// Kind of the object.
    #[serde(default)]
    pub kind: AuthServerRefKind,
    /// Name of the object; its type must be `embeddedAuthServer`.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// The kinds that can hold an embedded authorization server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AuthServerRefKind {
    /// An MCPExternalAuthConfig of type `embeddedAuthServer`.
    #[default]
    MCPExternalAuthConfig,
}

/// Where a bundle of certificate authorities is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaBundleRef {
    /// The ConfigMap key that holds PEM certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalKeyRef>,
}

/// Names one key of a ConfigMap or Secret, as pods do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = atomic_object)]
pub struct LocalKeyRef {
    /// Name of the ConfigMap or Secret.
    #[serde(default)]
    pub name: String,
    /// Key inside it.
    pub key: String,
    /// Whether the object or its key may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Names a Secret with which images are pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = atomic_object)]
pub struct LocalNameRef {
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
}
