//! Every write that the operator sends to the API server, and the shape of each. Nothing is ever replaced whole (`PUT`).
//!
//! | what | how | why | function |
//! | --- | --- | --- | --- |
//! | child | server-side apply, own field manager, force | the API server is the only comparator; fields of other managers survive | [`Writer::apply`] |
//! | child that no watch shows | the same with a resource version that no object has | creates it, and never touches one that exists | [`Writer::create_child`] |
//! | backend that a proxy made | server-side apply of its owner reference, with its uid | it is garbage collected with the resource; the uid keeps it from being created | [`Writer::adopt`] |
//! | field managers of a child | JSON patch of `managedFields` that tests the resource version | fields of the operator before us become ours; replicas are left to others | [`Writer::take_over`], [`Writer::leave_replicas`] |
//! | child, backend, pod that goes | delete with the uid as precondition | a new object of the same name is never hit | [`Writer::delete`], [`Writer::delete_pods`] |
//! | generated Secret | create, never changed | its content is random | [`Writer::create_secret`] |
//! | metadata of a resource of ours | merge patch with `metadata.resourceVersion` | a merge patch replaces `finalizers` whole: without the precondition, one of two controllers that add theirs would lose it. The loser gets a conflict, and starts again from a fresh read | [`Writer::metadata`] |
//! | status of a resource of ours | merge patch on `/status` of the difference, no precondition; no difference, no request | the operator and a program that reports other fields of the same status do not disturb each other | [`Writer::status`] |
//! | finalizer, when the operator is uninstalled | merge patch with `metadata.resourceVersion`, in any served version | as above | `resources::release_finalizer` |
//! | stored version of a resource of ours | empty merge patch | the API server stores the object anew, in today's version | `resources::store_anew` |
//! | stored versions of a definition | merge patch on `/status` with `metadata.resourceVersion` | the list may have grown meanwhile | `cluster::strike_stored_versions` |
//! | Lease | create; merge patch with `metadata.resourceVersion`; delete with uid and resource version | of two candidates the quicker one wins | `cluster::create_lease`, `patch_lease`, `delete_lease` |
//! | scale of the operator's Deployment | merge patch on `/scale` | it is stopped before its finalizers are removed | `cluster::scale_to_zero` |
//! | event | create; a repeated one is patched into a series | never a reason to fail | `cluster::publish` |
//!
//! A status has two traps, both pinned by tests: arrays are replaced whole, so `conditions` must have one writer; and a difference that
//! was computed from a stale status overwrites scalars that changed since. The store keeps our own writes for that reason.

mod children;
pub(crate) mod cluster;
pub(crate) mod resources;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::Api;
use kube::core::{ApiResource, GroupVersionKind, Status};
use skep_api::crd::{GROUP, STORED_VERSION};
use skep_api::resource::KindName;
use skep_plan::child::ChildKind;

use crate::metrics::Metrics;
use crate::object::{Metadata, Object};
use crate::served::{Served, resource_in};

/// The field manager of everything that the operator writes.
pub const MANAGER: &str = "skep-operator";

/// A write that failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Another client wrote in between. Not a fault: start again from a fresh read.
    #[error("`{object}` was changed by another client meanwhile")]
    Conflict {
        /// Which object.
        object: String,
    },
    /// What an object refers to does not exist, as far as the API server has seen: its own cache is a moment behind.
    #[error("cannot apply `{object}` yet: {message}")]
    NotYet {
        /// Which object.
        object: String,
        /// What is not there.
        message: String,
    },
    /// Nothing can be created, as the namespace is being deleted.
    #[error("cannot apply `{object}`: its namespace is terminating")]
    NamespaceTerminating {
        /// Which object.
        object: String,
    },
    /// The API server refused, or could not be reached.
    #[error("cannot {verb} `{object}`")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        object: String,
        /// What came back.
        source: Box<kube::Error>,
    },
}

/// Sends writes and counts them.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    metrics: Metrics,
    served: Arc<Served>,
}

/// The metadata of a child, as the API server answers a write of it.
pub type ChildResponse = Metadata;

/// How kube addresses a kind of ours in the stored version.
pub fn api_resource(kind: KindName) -> ApiResource {
    resource_in(kind, STORED_VERSION)
}

/// How kube addresses a kind of child.
pub fn child_resource(kind: ChildKind) -> ApiResource {
    let (group, version, plural) = kind.api();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.as_str()), plural)
}

// === impl Writer ===

impl Writer {
    /// A writer that counts into `metrics`, and writes every kind in its stored version.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self::serving(client, metrics, Arc::default())
    }

    /// A writer that writes every kind in the version that is served.
    pub const fn serving(client: Client, metrics: Metrics, served: Arc<Served>) -> Self {
        Self { client, metrics, served }
    }

    /// The API version in which a kind of ours is read and written.
    pub fn api_version(&self, kind: KindName) -> String {
        format!("{GROUP}/{}", self.served.version(kind))
    }

    fn resources(&self, kind: KindName, namespace: &str) -> Api<Object> {
        Api::namespaced_with(self.client.clone(), namespace, &resource_in(kind, self.served.version(kind)))
    }

    fn children(&self, kind: ChildKind, namespace: &str) -> Api<Metadata> {
        Api::namespaced_with(self.client.clone(), namespace, &child_resource(kind))
    }
}

/// The namespace and the name of an object.
fn place(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// Whether the API server refused to create an object because its namespace is being deleted.
pub fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

// === impl WriteError ===

impl WriteError {
    fn from(error: kube::Error, verb: &'static str, object: String) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict { object },
            kube::Error::Api(status) if is_terminating(&status) => Self::NamespaceTerminating { object },
            other => Self::Api { verb, object, source: Box::new(other) },
        }
    }

    /// The category for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::NotYet { .. } => "not yet",
            Self::NamespaceTerminating { .. } => "terminating",
            Self::Api { .. } => "api",
        }
    }

    /// What the API server said, where it refused what was sent as such, and what to do: trying the same again cannot help.
    pub fn refusal(&self) -> Option<(&str, &'static str)> {
        let Self::Api { source, .. } = self else { return None };
        let kube::Error::Api(status) = source.as_ref() else { return None };
        let advice = match status.code {
            400 | 422 => "correct the spec",
            403 => "a policy, a quota or the operator's rights stand in the way",
            _ => return None,
        };
        Some((&status.message, advice))
    }

    /// Whether what we wanted to change does not exist any more.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.is_not_found()))
    }
}
