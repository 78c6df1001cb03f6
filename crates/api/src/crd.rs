//! The CustomResourceDefinitions: what the Rust types say, as the objects that the API server wants.
//!
//! Every kind is served as v1beta1, which is stored, and as v1alpha1 with the same schema, so that older manifests apply.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceStatus,
    CustomResourceSubresources, CustomResourceValidation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::custom::{Kind, Older};
use crate::resource::KindName;
use crate::schema::structural;

/// The API group of every kind.
pub const GROUP: &str = "toolhive.stacklok.dev";
/// The version that is stored.
pub const STORED_VERSION: &str = "v1beta1";
/// The version that is served for older manifests.
pub const OLDER_VERSION: &str = "v1alpha1";
/// The category: `kubectl get toolhive` lists every kind.
pub const CATEGORY: &str = "toolhive";
/// Marks a definition whose stored objects the operator rewrites when the stored version changes.
pub const MIGRATE_LABEL: &str = "toolhive.stacklok.dev/auto-migrate-storage-version";

/// A definition could not be put together. Only a mistake in this crate's own types can cause it.
#[derive(Debug, thiserror::Error)]
#[error("the definition of `{kind}` is not valid")]
pub struct CrdError {
    kind: String,
    source: serde_json::Error,
}

impl CrdError {
    pub(crate) fn new(definition: &CustomResourceDefinition, source: serde_json::Error) -> Self {
        Self { kind: definition.spec.names.kind.clone(), source }
    }
}

/// All definitions, sorted by kind.
pub fn all() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    KindName::ALL.iter().map(|kind| kind.definition()).collect()
}

/// The definition of one kind.
pub fn definition<S: Kind>() -> Result<CustomResourceDefinition, CrdError> {
    let stored = version::<S>(STORED_VERSION)?;
    let mut older = version::<S>(OLDER_VERSION)?;
    older.storage = false;
    if S::OLDER_VERSION == Older::Deprecated {
        older.deprecated = Some(true);
        older.deprecation_warning =
            Some(format!("{GROUP}/{OLDER_VERSION} {} is deprecated; write {GROUP}/{STORED_VERSION}", S::KIND));
    }
    Ok(CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{GROUP}", S::PLURAL)),
            labels: Some([(MIGRATE_LABEL.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: S::KIND.to_owned(),
                list_kind: Some(format!("{}List", S::KIND)),
                plural: S::PLURAL.to_owned(),
                singular: Some(S::KIND.to_lowercase()),
                short_names: Some(S::SHORT_NAMES.iter().map(ToString::to_string).collect()),
                categories: Some(vec![CATEGORY.to_owned()]),
            },
            scope: "Namespaced".to_owned(),
            versions: vec![older, stored],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    })
}

fn version<S: Kind>(name: &str) -> Result<CustomResourceDefinitionVersion, CrdError> {
    let root = json!({
        "type": "object",
        "description": S::ABOUT,
        "properties": {
            "apiVersion": { "type": "string", "description": "Version of the API that this object is written in." },
            "kind": { "type": "string", "description": "Kind of this object." },
            "metadata": { "type": "object" },
            "spec": structural::<S>(),
            "status": structural::<S::Status>(),
        },
    });
    let schema = serde_json::from_value(root).map_err(|source| CrdError { kind: S::KIND.to_owned(), source })?;
    let columns = S::COLUMNS.iter().map(|column| CustomResourceColumnDefinition {
        name: column.name.to_owned(),
        json_path: column.path.to_owned(),
        type_: column.kind.to_owned(),
        ..CustomResourceColumnDefinition::default()
    });
    Ok(CustomResourceDefinitionVersion {
        name: name.to_owned(),
        served: true,
        storage: true,
        deprecated: S::DEPRECATED.map(|_| true),
        deprecation_warning: S::DEPRECATED.map(str::to_owned),
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        subresources: Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(json!({}))),
            scale: None,
        }),
        additional_printer_columns: Some(columns.collect()),
        ..CustomResourceDefinitionVersion::default()
    })
}
