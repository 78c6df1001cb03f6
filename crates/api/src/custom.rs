//! One root type for all kinds: what `metadata`, `spec` and `status` have in common, written once.
//!
//! A kind is its spec: `impl Kind for MCPServerSpec` says what it is called, and `Custom<MCPServerSpec>` is the object that
//! travels. See `docs/decisions/0001-own-root-type.md` for why this is not derived.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::crd::{GROUP, STORED_VERSION};
use crate::reference::Reference;

/// What a kind is called, and what is reported about it. Implemented by its spec.
pub trait Kind: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// What is reported about objects of this kind.
    type Status: Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// The kind, such as `MCPServer`.
    const KIND: &'static str;
    /// What it is, in one sentence.
    const ABOUT: &'static str;
    /// The name in URLs, such as `mcpservers`.
    const PLURAL: &'static str;
    /// What people may type instead.
    const SHORT_NAMES: &'static [&'static str];
    /// What `kubectl get` shows.
    const COLUMNS: &'static [Column];
    /// Whether the stored version itself is deprecated, and what to say then.
    const DEPRECATED: Option<&'static str> = None;
    /// What using the older version means.
    const OLDER_VERSION: Older = Older::Deprecated;

    /// Everything that it refers to, in the order of its fields.
    fn references(&self) -> Vec<Reference>;
}

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Where its value is.
    pub path: &'static str,
    /// How its value is shown.
    pub kind: &'static str,
}

/// What using the older version of a kind means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// The API server warns clients that use it.
    Deprecated,
    /// It is as good as the newer one: until Skep, the kind had no other.
    Current,
}

/// An object of one of Skep's kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Custom<S: Kind> {
    /// Name, namespace, labels and what else every object has.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: S,
    /// What is the case.
    pub status: Option<S::Status>,
    /// The status as it is stored, where another release wrote it and it does not fit our type: [`Self::status`] is `None` then.
    pub foreign_status: Option<Box<Value>>,
}

/// The column that every kind ends with, or has near its end.
pub(crate) const AGE: Column = column("Age", ".metadata.creationTimestamp", "date");

/// A column of `kubectl get`.
pub(crate) const fn column(name: &'static str, path: &'static str, kind: &'static str) -> Column {
    Column { name, path, kind }
}

// === impl Custom ===

impl<S: Kind> Custom<S> {
    /// A new object that only has a name.
    pub fn new(name: &str, spec: S) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, spec, status: None, foreign_status: None }
    }
}

impl<S: Kind> kube::Resource for Custom<S> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        S::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        STORED_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        S::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<S: Kind> Serialize for Custom<S> {
    fn serialize<Z: Serializer>(&self, serializer: Z) -> Result<Z::Ok, Z::Error> {
        let fields = 4 + usize::from(self.status.is_some());
        let mut object = serializer.serialize_struct(S::KIND, fields)?;
        object.serialize_field("apiVersion", &format!("{GROUP}/{STORED_VERSION}"))?;
        object.serialize_field("kind", S::KIND)?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("spec", &self.spec)?;
        if let Some(status) = &self.status {
            object.serialize_field("status", status)?;
        }
        object.end()
    }
}

impl<'de, S: Kind> Deserialize<'de> for Custom<S> {
    /// An object without `spec` is read as one whose spec is empty: `spec` is optional in every schema, and for a kind
    /// whose fields are all optional (a group, say) people leave it out.
    ///
    /// Only the spec can make an object unreadable. A status is ours to write: one that does not fit, such as the phase `Running` of
    /// older releases of ToolHive, counts as none, and the next write of the status replaces it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "S: Kind"))]
        struct Wire<S: Kind> {
            #[serde(default)]
            metadata: ObjectMeta,
            spec: Option<S>,
            status: Option<Value>,
        }
        let Wire { metadata, spec, status } = Wire::<S>::deserialize(deserializer)?;
        let spec = match spec {
            Some(spec) => spec,
            None => S::deserialize(MapDeserializer::new(std::iter::empty::<(&str, &str)>()))?,
        };
        let read = status.as_ref().and_then(|status| S::Status::deserialize(status).ok());
        let foreign_status = status.filter(|_| read.is_none()).map(Box::new);
        Ok(Self { metadata, spec, status: read, foreign_status })
    }
}
