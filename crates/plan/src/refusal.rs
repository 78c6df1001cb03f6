//! Why a plan applies nothing, in the words that kinds with pods share.

use std::fmt::Display;

use skep_api::authz::AuthzConfig;
use skep_api::resource::Resource;

use crate::text::is_dns_label;
use crate::world::World;

/// Why nothing is applied: what was written down cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// In one word.
    pub(crate) reason: &'static str,
    /// What is wrong, where, and what to do.
    pub(crate) message: String,
}

// === impl Refusal ===

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::spec(message)
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Self {
        Self::spec(message.to_owned())
    }
}

impl Refusal {
    /// The reason when the name of a child is taken.
    pub(crate) const NAME_TAKEN: &'static str = "NameTaken";
    /// The reason when the API server does not accept a child.
    pub(crate) const APPLY_REFUSED: &'static str = "ApplyRefused";
    const TEMPLATE: &'static str = "InvalidPodTemplateSpec";

    /// The spec is at fault.
    pub(crate) fn spec(message: String) -> Self {
        Self { reason: "ValidationFailed", message }
    }

    /// The user's pod template is at fault.
    pub(crate) fn template(problem: impl Display) -> Self {
        Self { reason: Self::TEMPLATE, message: format!("Invalid PodTemplateSpec: {problem}") }
    }

    /// Whether the user's pod template is at fault.
    pub(crate) fn is_of_template(&self) -> bool {
        self.reason == Self::TEMPLATE
    }
}

/// Refuses a resource whose name is too long, or is no name, for the Service and the pods that are named after it.
pub(crate) fn check_name(me: &Resource, longest: usize) -> Result<(), Refusal> {
    let name = me.name();
    if name.len() <= longest && is_dns_label(name) && !name.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok(());
    }
    let advice = format!("use at most {longest} lower-case letters, digits and `-`, and begin with a letter");
    Err(Refusal::spec(format!("metadata.name: no Service can be named after `{name}`; {advice}")))
}

/// Refuses a resource of whose children one has a name that is somebody else's, or is not accepted by the API server.
pub(crate) fn check_untaken(me: &Resource, world: &World<'_>) -> Result<(), Refusal> {
    if let Some(message) = &world.live.refused {
        return Err(Refusal { reason: Refusal::APPLY_REFUSED, message: message.clone() });
    }
    let Some((kind, name, owner)) = world.live.taken.first() else { return Ok(()) };
    let advice = format!("rename this {}, or remove the other object", me.kind());
    Err(Refusal {
        reason: Refusal::NAME_TAKEN,
        message: format!("the name of {kind} `{name}` is taken by {owner}; {advice}"),
    })
}

/// What to say about a key of a Secret that is not there.
pub(crate) fn missing_secret(field: &str, name: &str, key: &str, namespace: &str, world: &World<'_>) -> Option<String> {
    match world.secret(namespace, name) {
        None => Some(format!("{field}: Secret `{name}` not found; create it with the key `{key}`")),
        Some(keys) if !keys.contains_key(key) => Some(format!("{field}: Secret `{name}` has no key `{key}`; add it")),
        Some(_) => None,
    }
}

/// What to say about a key of a ConfigMap that is not there.
pub(crate) fn missing_config_map(
    field: &str,
    name: &str,
    key: &str,
    namespace: &str,
    world: &World<'_>,
) -> Option<String> {
    match world.config_map(namespace, name) {
        None => Some(format!("{field}: ConfigMap `{name}` not found; create it with the key `{key}`")),
        Some(data) if !data.contains_key(key) => {
            Some(format!("{field}: ConfigMap `{name}` has no key `{key}`; add it"))
        }
        Some(_) => None,
    }
}

/// What to say about the policies of an `authzConfig` that are to be read from a ConfigMap that is not there.
pub(crate) fn missing_policies(authz: &AuthzConfig, namespace: &str, world: &World<'_>) -> Option<String> {
    let map = authz.config_map.as_ref().filter(|_| authz.inline.is_none())?;
    missing_config_map("spec.authzConfig", &map.name, &map.key, namespace, world)
}
