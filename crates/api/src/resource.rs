//! All kinds under one roof: [`KindName`] says which one, [`Resource`] holds an object of it.
//!
//! The table at the end of this file is the only list of the kinds; the definitions, the operator's watches and the checks of
//! manifests all read it.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::crd::{CrdError, definition};
use crate::custom::{Custom, Kind};
use crate::kinds::{
    CompositeTool, EmbeddingServerSpec, MCPAuthzConfigSpec, MCPExternalAuthConfigSpec, MCPGroupSpec, MCPOIDCConfigSpec,
    MCPRegistrySpec, MCPRemoteProxySpec, MCPServerEntrySpec, MCPServerSpec, MCPTelemetryConfigSpec, MCPToolConfigSpec,
    MCPWebhookConfigSpec, VirtualMCPServerSpec,
};
use crate::reference::Reference;

macro_rules! kinds {
    ($($kind:ident => $spec:ty),+ $(,)?) => {
        /// The name of a kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "each is the kind of its name")]
        pub enum KindName { $($kind),+ }

        /// An object of any kind.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "each is an object of the kind of its name")]
        pub enum Resource { $($kind(Box<Custom<$spec>>)),+ }

        impl KindName {
            /// Every kind, sorted by name.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// As manifests spell it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => <$spec as Kind>::KIND),+ }
            }

            /// As URLs spell it.
            pub const fn plural(self) -> &'static str {
                match self { $(Self::$kind => <$spec as Kind>::PLURAL),+ }
            }

            /// Its definition.
            pub fn definition(self) -> Result<CustomResourceDefinition, CrdError> {
                match self { $(Self::$kind => definition::<$spec>()),+ }
            }
        }

        impl Resource {
            /// Reads an object of a kind.
            pub fn from_value(kind: KindName, value: Value) -> Result<Self, serde_json::Error> {
                match kind { $(KindName::$kind => serde_json::from_value(value).map(Self::$kind)),+ }
            }

            /// Reads an object of a kind, and leaves it as it is.
            pub fn from_ref(kind: KindName, value: &Value) -> Result<Self, serde_json::Error> {
                match kind { $(KindName::$kind => Custom::<$spec>::deserialize(value).map(|object| Self::$kind(Box::new(object)))),+ }
            }

            /// Which kind it is of.
            pub const fn kind(&self) -> KindName {
                match self { $(Self::$kind(_) => KindName::$kind),+ }
            }

            /// Name, namespace, labels and what else every object has.
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata),+ }
            }

            /// Everything that it refers to, in the order of its fields.
            pub fn references(&self) -> Vec<Reference> {
                match self { $(Self::$kind(object) => object.spec.references()),+ }
            }

            /// Its spec as JSON.
            pub fn spec_value(&self) -> Value {
                // INVARIANT: our specs are plain structs with string keys; writing them as JSON cannot fail.
                match self { $(Self::$kind(object) => serde_json::to_value(&object.spec).unwrap_or_default()),+ }
            }

            /// Its status as JSON; an empty object where there is none yet.
            pub fn status_value(&self) -> Value {
                let status = match self { $(Self::$kind(object) => serde_json::to_value(&object.status)),+ };
                match status { Ok(Value::Object(fields)) => Value::Object(fields), _ => Value::Object(serde_json::Map::new()) }
            }

            /// Its status as it is stored, also where it cannot be read; an empty object where there is none yet.
            pub fn stored_status(&self) -> Value {
                let foreign = match self { $(Self::$kind(object) => object.foreign_status.as_deref()),+ };
                foreign.cloned().unwrap_or_else(|| self.status_value())
            }
        }

        $(impl From<Custom<$spec>> for Resource {
            fn from(object: Custom<$spec>) -> Self {
                Self::$kind(Box::new(object))
            }
        })+
    };
}

kinds! {
    EmbeddingServer => EmbeddingServerSpec,
    MCPAuthzConfig => MCPAuthzConfigSpec,
    MCPExternalAuthConfig => MCPExternalAuthConfigSpec,
    MCPGroup => MCPGroupSpec,
    MCPOIDCConfig => MCPOIDCConfigSpec,
    MCPRegistry => MCPRegistrySpec,
    MCPRemoteProxy => MCPRemoteProxySpec,
    MCPServer => MCPServerSpec,
    MCPServerEntry => MCPServerEntrySpec,
    MCPTelemetryConfig => MCPTelemetryConfigSpec,
    MCPToolConfig => MCPToolConfigSpec,
    MCPWebhookConfig => MCPWebhookConfigSpec,
    VirtualMCPCompositeToolDefinition => CompositeTool,
    VirtualMCPServer => VirtualMCPServerSpec,
}

// === impl KindName, Resource ===

impl KindName {
    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// Whether it is one of the six kinds that only configure others.
    pub const fn is_config(self) -> bool {
        matches!(
            self,
            Self::MCPAuthzConfig
                | Self::MCPExternalAuthConfig
                | Self::MCPOIDCConfig
                | Self::MCPTelemetryConfig
                | Self::MCPToolConfig
                | Self::MCPWebhookConfig
        )
    }

    /// Whether its objects can refer to one of the kinds that only configure others.
    pub const fn may_use_configs(self) -> bool {
        matches!(self, Self::MCPRemoteProxy | Self::MCPServer | Self::MCPServerEntry | Self::VirtualMCPServer)
    }

    /// The finalizer that holds an object of this kind until its deletion has been dealt with. Kinds without one need none:
    /// their children go by their owner references.
    pub const fn finalizer(self) -> Option<&'static str> {
        match self {
            Self::EmbeddingServer => Some(finalizer::EMBEDDING_SERVER),
            Self::MCPAuthzConfig => Some(finalizer::AUTHZ_CONFIG),
            Self::MCPExternalAuthConfig => Some(finalizer::EXTERNAL_AUTH_CONFIG),
            Self::MCPGroup => Some(finalizer::GROUP),
            Self::MCPOIDCConfig => Some(finalizer::OIDC_CONFIG),
            Self::MCPRegistry => Some(finalizer::REGISTRY),
            Self::MCPServer => Some(finalizer::SERVER),
            Self::MCPTelemetryConfig => Some(finalizer::TELEMETRY_CONFIG),
            Self::MCPToolConfig => Some(finalizer::TOOL_CONFIG),
            Self::MCPWebhookConfig => Some(finalizer::WEBHOOK_CONFIG),
            Self::MCPRemoteProxy
            | Self::MCPServerEntry
            | Self::VirtualMCPCompositeToolDefinition
            | Self::VirtualMCPServer => None,
        }
    }
}

/// The finalizers, one per kind that has one.
pub mod finalizer {
    /// Of an EmbeddingServer.
    pub const EMBEDDING_SERVER: &str = "embeddingserver.toolhive.stacklok.dev/finalizer";
    /// Of an MCPAuthzConfig.
    pub const AUTHZ_CONFIG: &str = "mcpauthzconfig.toolhive.stacklok.dev/finalizer";
    /// Of an MCPExternalAuthConfig.
    pub const EXTERNAL_AUTH_CONFIG: &str = "mcpexternalauthconfig.toolhive.stacklok.dev/finalizer";
    /// Of an MCPGroup.
    pub const GROUP: &str = "toolhive.stacklok.dev/mcpgroup-finalizer";
    /// Of an MCPOIDCConfig.
    pub const OIDC_CONFIG: &str = "mcpoidcconfig.toolhive.stacklok.dev/finalizer";
    /// Of an MCPRegistry.
    pub const REGISTRY: &str = "mcpregistry.toolhive.stacklok.dev/finalizer";
    /// Of an MCPServer.
    pub const SERVER: &str = "mcpserver.toolhive.stacklok.dev/finalizer";
    /// Of an MCPTelemetryConfig.
    pub const TELEMETRY_CONFIG: &str = "mcptelemetryconfig.toolhive.stacklok.dev/finalizer";
    /// Of an MCPToolConfig.
    pub const TOOL_CONFIG: &str = "toolhive.stacklok.dev/toolconfig-finalizer";
    /// Of an MCPWebhookConfig.
    pub const WEBHOOK_CONFIG: &str = "mcpwebhookconfig.toolhive.stacklok.dev/finalizer";
}

impl fmt::Display for KindName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Resource {
    /// Its name; empty for an object that has none yet.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// Its namespace; empty for an object that has none yet.
    pub fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    /// Its generation; 0 for an object that has none yet.
    pub fn generation(&self) -> i64 {
        self.metadata().generation.unwrap_or_default()
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a schema has a field that refers to a configuration, by the names that such fields have.
    fn names_configs(schema: &Value) -> bool {
        let is_reference = |name: &str| name.ends_with("ConfigRef") || name == "authServerRef";
        match schema {
            Value::Object(members) => members.iter().any(|(name, value)| is_reference(name) || names_configs(value)),
            Value::Array(values) => values.iter().any(names_configs),
            _ => false,
        }
    }

    #[test]
    fn a_status_that_cannot_be_read_counts_as_none_and_is_kept_as_stored() {
        let object = |status: Value| serde_json::json!({ "spec": { "image": "i" }, "status": status });
        let read = |status: Value| Resource::from_ref(KindName::MCPServer, &object(status)).unwrap();
        for status in [
            serde_json::json!({ "phase": "Running", "url": "http://old" }),
            serde_json::json!({ "conditions": {} }),
            serde_json::json!("Running"),
        ] {
            let server = read(status.clone());
            assert_eq!((server.status_value(), server.stored_status()), (serde_json::json!({}), status));
        }
        let ours = serde_json::json!({ "phase": "Ready" });
        assert_eq!((read(ours.clone()).status_value(), read(ours.clone()).stored_status()), (ours.clone(), ours));
        assert_eq!(read(Value::Null).stored_status(), serde_json::json!({}));
        // The spec is what an object is about.
        assert!(Resource::from_value(KindName::MCPServer, serde_json::json!({ "spec": { "image": 1 } })).is_err());
    }

    #[test]
    fn the_kinds_that_may_use_configs_are_those_whose_schema_has_such_a_reference() {
        for kind in KindName::ALL {
            let definition = serde_json::to_value(kind.definition().unwrap()).unwrap();
            let schemas = definition.pointer("/spec/versions").unwrap();
            assert_eq!(names_configs(schemas), kind.may_use_configs(), "{kind}");
        }
    }
}
