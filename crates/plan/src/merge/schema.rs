//! Which lists of a pod template are merged, and by what: the `patchStrategy` and `patchMergeKey` of the Kubernetes API.
//!
//! A member that is not in the table is merged if it is an object, and replaced if it is a list. So a field that a newer
//! Kubernetes adds is handled before this table knows it.

/// The members of an object that need saying something about.
#[derive(Debug)]
pub(super) struct Schema(&'static [(&'static str, Member)]);

/// What a member of an object is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Member {
    /// An object with such members of its own.
    Object(&'static Schema),
    /// A list of objects with a merge key.
    Keyed(&'static str, &'static Schema),
    /// A list of scalars without order or repetition.
    Set,
}

use Member::{Keyed, Object, Set};

/// Nothing to say.
pub(super) static PLAIN: Schema = Schema(&[]);

pub(super) static POD_TEMPLATE: Schema = Schema(&[("metadata", Object(&METADATA)), ("spec", Object(&POD))]);

static METADATA: Schema = Schema(&[("finalizers", Set), ("ownerReferences", Keyed("uid", &PLAIN))]);

static POD: Schema = Schema(&[
    ("containers", Keyed("name", &CONTAINER)),
    ("ephemeralContainers", Keyed("name", &CONTAINER)),
    ("evictionResponders", Keyed("name", &PLAIN)),
    ("hostAliases", Keyed("ip", &PLAIN)),
    ("imagePullSecrets", Keyed("name", &PLAIN)),
    ("initContainers", Keyed("name", &CONTAINER)),
    ("resourceClaims", Keyed("name", &PLAIN)),
    ("schedulingGates", Keyed("name", &PLAIN)),
    ("topologySpreadConstraints", Keyed("topologyKey", &PLAIN)),
    ("volumes", Keyed("name", &VOLUME)),
]);

static CONTAINER: Schema = Schema(&[
    ("env", Keyed("name", &PLAIN)),
    ("ports", Keyed("containerPort", &PLAIN)),
    ("volumeDevices", Keyed("devicePath", &PLAIN)),
    ("volumeMounts", Keyed("mountPath", &PLAIN)),
]);

static VOLUME: Schema = Schema(&[("ephemeral", Object(&EPHEMERAL))]);
static EPHEMERAL: Schema = Schema(&[("volumeClaimTemplate", Object(&CLAIM_TEMPLATE))]);
static CLAIM_TEMPLATE: Schema = Schema(&[("metadata", Object(&METADATA))]);

// === impl Schema ===

impl Schema {
    pub(super) fn member(&self, name: &str) -> Option<Member> {
        self.0.iter().find_map(|(known, member)| (*known == name).then_some(*member))
    }

    /// What is known about an object under a name.
    pub(super) fn object(&self, name: &str) -> &'static Schema {
        match self.member(name) {
            Some(Object(schema)) => schema,
            _ => &PLAIN,
        }
    }
}
