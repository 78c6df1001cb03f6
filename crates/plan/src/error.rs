//! Why a resource cannot be planned: the one error of this crate. The verdict, the reason of a condition and its message all follow
//! from it, here and nowhere else.

use std::fmt::{self, Display};

use skep_api::authz::AuthzConfig;
use skep_api::resource::{KindName, Resource};

use crate::child::ChildKind;
use crate::key::ObjectKind;
use crate::plan::Verdict;
use crate::text::is_dns_label;
use crate::world::World;

/// Why a plan applies nothing, or why what a reference names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The spec is invalid: which field, why, and what to do.
    #[error("{0}")]
    InvalidSpec(String),
    /// `spec.remoteUrl` is invalid.
    #[error("spec.remoteUrl: {0}")]
    InvalidRemoteUrl(String),
    /// A header cannot be forwarded.
    #[error("spec.headerForward: {0}")]
    InvalidHeaders(String),
    /// The policies of a spec are invalid.
    #[error("{0}")]
    InvalidPolicies(String),
    /// The policies of a ConfigMap are invalid.
    #[error("{0}")]
    InvalidPolicyMap(String),
    /// The pod template of a spec is invalid.
    #[error("Invalid PodTemplateSpec: {0}")]
    InvalidPodTemplate(String),
    /// A configuration is invalid, or cannot be used where it is referred to.
    #[error("{message}")]
    InvalidConfig {
        /// The reason of the condition about it.
        reason: &'static str,
        /// Which field, why, and what to do.
        message: String,
    },
    /// Something that the plan needs is not ready or not known yet, or fails for now, with the reason of the condition about it.
    #[error("{message}")]
    NotReady {
        /// The reason of the condition.
        reason: &'static str,
        /// Which, why, and what to do.
        message: String,
    },
    /// A resource does not exist.
    #[error("{kind} `{name}` not found in namespace `{namespace}`; create it, or correct the reference")]
    MissingResource {
        /// Its kind.
        kind: KindName,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// A key of a Secret or ConfigMap does not exist.
    #[error("{0}")]
    MissingKey(MissingKey),
    /// The Secret with the value of a header does not exist.
    #[error("{0}")]
    MissingHeaderSecret(MissingKey),
    /// The ConfigMap with the policies does not exist.
    #[error("{0}")]
    MissingPolicyMap(String),
    /// Objects of a kind cannot be listed, so that it is not known whether one exists.
    #[error("{kind} `{name}` is not known, as {kind}s cannot be listed: {why}")]
    Unlisted {
        /// The kind.
        kind: KindName,
        /// The name of the object.
        name: String,
        /// Why the kind cannot be listed.
        why: String,
    },
    /// The data plane of the configured images lacks a feature.
    #[error("{0}; remove it, or use an image that supports it")]
    Unsupported(String),
    /// Only a pod has what the spec asks for, so that no process of a machine can do it.
    #[error("{0}")]
    NeedsPod(String),
    /// An object of another owner has the name of a child.
    #[error("the name of {kind} `{name}` is in use by {owner}; rename this {resource}, or remove the other object")]
    NameConflict {
        /// The kind of the child.
        kind: ChildKind,
        /// Its name.
        name: String,
        /// The owner of the object that has it.
        owner: String,
        /// The kind of the resource.
        resource: KindName,
    },
    /// The name of a child is that of an object whose owner had the name of this resource and was deleted.
    #[error("{kind} `{name}` of the {resource} that had this name before is being garbage-collected")]
    GarbageCollected {
        /// The kind of the child.
        kind: ChildKind,
        /// Its name.
        name: String,
        /// The kind of the resource.
        resource: KindName,
    },
    /// The API server refused a child, with its message.
    #[error("{0}")]
    ApplyRefused(String),
    /// The volume claims of a StatefulSet would have to change.
    #[error("{0}")]
    ImmutableVolumeClaim(String),
}

/// A key of a Secret or ConfigMap that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingKey {
    /// The field that names it.
    pub field: String,
    /// A Secret or a ConfigMap.
    pub kind: ObjectKind,
    /// The name of the object.
    pub name: String,
    /// The key.
    pub key: String,
    /// Whether the object exists without the key.
    pub object_exists: bool,
}

/// The reason of a condition about an object whose kind cannot be listed.
pub(crate) const UNLISTED: &str = "KindUnavailable";
/// The reason of a resource that waits for the children of the one that had its name before.
pub(crate) const GARBAGE_COLLECTION: &str = "WaitingForGarbageCollection";
/// The reason of every condition about a feature that is not supported.
pub(crate) const NOT_SUPPORTED: &str = "NotSupported";

// === impl PlanError ===

impl PlanError {
    /// The reason of a condition.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InvalidSpec(_) | Self::NeedsPod(_) => "ValidationFailed",
            Self::InvalidRemoteUrl(_) => "RemoteURLInvalid",
            Self::InvalidHeaders(_) => "HeaderForwardInvalid",
            Self::InvalidPolicies(_) => "AuthzPolicySyntaxInvalid",
            Self::InvalidPolicyMap(_) => "AuthzConfigMapInvalid",
            Self::InvalidPodTemplate(_) => "InvalidPodTemplateSpec",
            Self::InvalidConfig { reason, .. } | Self::NotReady { reason, .. } => reason,
            Self::MissingResource { .. } => "NotFound",
            Self::MissingKey(missing) => match missing.kind {
                ObjectKind::Secret => "SecretNotFound",
                ObjectKind::ConfigMap | ObjectKind::Kind(_) => "ConfigMapNotFound",
            },
            Self::MissingHeaderSecret(_) => "HeaderSecretNotFound",
            Self::MissingPolicyMap(_) => "AuthzConfigMapNotFound",
            Self::Unlisted { .. } => UNLISTED,
            Self::Unsupported(_) => NOT_SUPPORTED,
            Self::NameConflict { .. } => "NameTaken",
            Self::GarbageCollected { .. } => GARBAGE_COLLECTION,
            Self::ApplyRefused(_) => "ApplyRefused",
            Self::ImmutableVolumeClaim(_) => "VolumeClaimImmutable",
        }
    }

    /// The reason of a condition about a reference, given those for a missing and for an invalid object; an empty one stands for the
    /// object's own.
    pub(crate) const fn reference_reason(&self, missing: &'static str, invalid: &'static str) -> &'static str {
        match self {
            Self::Unlisted { .. } => UNLISTED,
            _ if self.is_missing() => missing,
            _ if invalid.is_empty() => self.reason(),
            _ => invalid,
        }
    }

    /// Waits for what may still be created, and refuses what only a change of the spec can correct.
    pub fn verdict(&self) -> Verdict {
        let waits = self.is_missing()
            || matches!(self, Self::NotReady { .. } | Self::Unlisted { .. } | Self::GarbageCollected { .. });
        if waits { Verdict::Wait(self.to_string()) } else { Verdict::Refuse(self.to_string()) }
    }

    /// Whether the cluster does not take the children, whatever the spec says.
    pub(crate) const fn is_of_cluster(&self) -> bool {
        matches!(self, Self::NameConflict { .. } | Self::GarbageCollected { .. } | Self::ApplyRefused(_))
    }

    /// Whether the pod template of the spec is invalid.
    pub(crate) const fn is_of_template(&self) -> bool {
        matches!(self, Self::InvalidPodTemplate(_))
    }

    /// A configuration that cannot be used where it is referred to.
    pub(crate) fn invalid(reason: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidConfig { reason, message: message.into() }
    }

    /// Something that the plan needs is not ready or not known yet, or fails for now.
    pub(crate) fn not_ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self::NotReady { reason, message: message.into() }
    }

    /// The pod template of the spec is invalid.
    pub(crate) fn template(problem: impl Display) -> Self {
        Self::InvalidPodTemplate(problem.to_string())
    }

    /// A field of the spec is invalid.
    pub(crate) fn field(field: impl Display, problem: impl Display) -> Self {
        Self::InvalidSpec(format!("{field}: {problem}"))
    }

    const fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::MissingResource { .. }
                | Self::MissingKey(_)
                | Self::MissingHeaderSecret(_)
                | Self::MissingPolicyMap(_)
        )
    }
}

// === impl MissingKey ===

impl Display for MissingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, kind, name, key, object_exists } = self;
        if *object_exists {
            write!(formatter, "{field}: {kind} `{name}` has no key `{key}`; add it")
        } else {
            write!(formatter, "{field}: {kind} `{name}` not found; create it with the key `{key}`")
        }
    }
}

impl MissingKey {
    /// The key of a Secret or ConfigMap that `field` names, if it does not exist.
    pub(crate) fn check(
        field: &str,
        (kind, name, key): (ObjectKind, &str, &str),
        namespace: &str,
        world: &World<'_>,
    ) -> Result<(), Self> {
        let has_key = match kind {
            ObjectKind::Secret => world.secret(namespace, name).map(|keys| keys.contains_key(key)),
            _ => world.config_map(namespace, name).map(|data| data.contains_key(key)),
        };
        if has_key == Some(true) {
            return Ok(());
        }
        let (field, name, key) = (field.to_owned(), name.to_owned(), key.to_owned());
        Err(Self { field, kind, name, key, object_exists: has_key.is_some() })
    }

    /// The key of the ConfigMap with the policies of an `authzConfig`, if it does not exist.
    pub(crate) fn in_policies(authz: &AuthzConfig, namespace: &str, world: &World<'_>) -> Result<(), Self> {
        let map = authz.config_map.as_ref().filter(|_| authz.inline.is_none());
        map.map_or(Ok(()), |map| {
            Self::check("spec.authzConfig", (ObjectKind::ConfigMap, &map.name, &map.key), namespace, world)
        })
    }
}

/// Refuses a resource whose name is too long or invalid for the Service and the pods that are named after it.
pub(crate) fn check_name(me: &Resource, longest: usize) -> Result<(), PlanError> {
    let name = me.name();
    if name.len() <= longest && is_dns_label(name) && !name.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(());
    }
    let advice = format!("use at most {longest} lower-case letters, digits and `-`, and begin with a letter");
    Err(PlanError::field("metadata.name", format_args!("no Service can be named after `{name}`; {advice}")))
}

/// Refuses a resource of whose children one has the name of another owner's object, or is not accepted by the API server.
pub(crate) fn check_names(me: &Resource, world: &World<'_>) -> Result<(), PlanError> {
    if let Some(message) = &world.live.refused {
        return Err(PlanError::ApplyRefused(message.clone()));
    }
    let Some((kind, name, owner)) = world.live.name_conflicts.first() else { return Ok(()) };
    let (kind, name, owner, resource) = (*kind, name.clone(), owner.clone(), me.kind());
    // It is not ours, so one that is called as we are had another uid: it was deleted, and its children go by themselves.
    Err(if owner == owner_text(resource.as_str(), me.name()) {
        PlanError::GarbageCollected { kind, name, resource }
    } else {
        PlanError::NameConflict { kind, name, owner, resource }
    })
}

/// The owner of an object, for messages.
pub fn owner_text(kind: &str, name: &str) -> String {
    format!("{kind} `{name}`")
}
