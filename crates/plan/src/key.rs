//! Names of objects, in one shape for all of them.

use std::fmt;

use skep_api::reference::{Reference, Target};
use skep_api::resource::{KindName, Resource};

use crate::text::is_dns_subdomain;

/// What kind of object a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// One of Skep's kinds.
    Kind(KindName),
    /// A Secret.
    Secret,
    /// A ConfigMap that the operator does not own.
    ConfigMap,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What kind of object.
    pub kind: ObjectKind,
    /// In which namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

// === impl Key ===

impl Key {
    /// The key of an object of ours.
    pub fn of(resource: &Resource) -> Self {
        Self::resource(resource.kind(), resource.namespace(), resource.name())
    }

    /// The key of an object of one of Skep's kinds.
    pub fn resource(kind: KindName, namespace: &str, name: &str) -> Self {
        Self { kind: ObjectKind::Kind(kind), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Whether the API server could have such an object. A name that is none would be read as a part of a request's URL.
    pub fn can_exist(&self) -> bool {
        is_dns_subdomain(&self.name)
    }

    /// Where a reference of an object in `namespace` leads.
    pub fn target(reference: &Reference, namespace: &str) -> Self {
        let kind = match &reference.to {
            Target::Kind(kind) => ObjectKind::Kind(*kind),
            Target::Secret { .. } => ObjectKind::Secret,
            Target::ConfigMap { .. } | Target::Document { .. } => ObjectKind::ConfigMap,
        };
        Self { kind, namespace: namespace.to_owned(), name: reference.name.clone() }
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(formatter),
            Self::Secret => formatter.write_str("Secret"),
            Self::ConfigMap => formatter.write_str("ConfigMap"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.kind, self.namespace, self.name)
    }
}
