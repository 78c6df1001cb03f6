//! `MCPServerEntry`: a remote server that virtual servers may use. Nothing runs for it; every check is a condition.

use skep_api::kinds::{MCPServerEntry, MCPServerEntrySpec};
use skep_api::resource::{KindName, Resource};

use crate::error::UNLISTED;
use crate::plan::Plan;
use crate::status::{Condition, Status};
use crate::text::{check_forwarded_header, check_header_limits, remote_url};
use crate::validate::{Problems, in_one_line, reference_problems, validate};
use crate::world::{Found, Site, World};

/// Plans an entry: no children, a status. Every check has a condition.
pub(crate) fn plan(me: &Resource, object: &MCPServerEntry, world: &World<'_>) -> Plan {
    let (spec, namespace) = (&object.spec, me.namespace());
    let mut conditions = vec![
        url(spec, world.settings.site),
        group(spec, namespace, world),
        external_auth(spec, namespace, world),
        ca_bundle(spec, namespace, world),
    ];
    conditions.extend(references(me));
    conditions.extend(header_secrets(spec, namespace, world));
    conditions.extend(header_names(spec));

    let failures: Vec<String> = conditions.iter().filter(|one| !one.is_true()).map(|one| one.message.clone()).collect();
    let valid = failures.is_empty();
    conditions.push(if valid {
        condition("Valid", true, "ConfigValid", "The entry can be used".to_owned())
    } else {
        condition("Valid", false, "ConfigInvalid", in_one_line(&failures))
    });

    let mut status = Status::default();
    status.set("phase", if valid { "Valid" } else { "Failed" });
    for Condition { kind, status: holds, reason, message } in conditions {
        status.condition(&kind, holds, &reason, message);
    }
    Plan::without_children(me, status)
}

fn url(spec: &MCPServerEntrySpec, site: Site) -> Condition {
    const CONDITION: &str = "RemoteURLValidated";
    match remote_url(&spec.remote_url, spec.allow_private_endpoint, site) {
        Ok(_) => condition(CONDITION, true, "RemoteURLValid", "Remote URL is valid".to_owned()),
        Err(problem) => condition(CONDITION, false, "RemoteURLInvalid", format!("spec.remoteUrl: {problem}")),
    }
}

fn group(spec: &MCPServerEntrySpec, namespace: &str, world: &World<'_>) -> Condition {
    const CONDITION: &str = "GroupRefValidated";
    let name = &spec.group_ref.name;
    match world.resource(KindName::MCPGroup, namespace, name) {
        Some(Found::Resource(group)) if !group.is_deleting() => {
            condition(CONDITION, true, "GroupRefIsValid", "Referenced MCPGroup exists and is ready".to_owned())
        }
        Some(_) => {
            let message =
                format!("spec.groupRef: MCPGroup `{name}` is being deleted or cannot be read; name another one");
            condition(CONDITION, false, "GroupRefNotReady", message)
        }
        None => {
            let message = format!(
                "spec.groupRef: MCPGroup `{name}` not found in namespace `{namespace}`; create it, or correct the name"
            );
            condition(CONDITION, false, "GroupRefNotFound", message)
        }
    }
}

fn external_auth(spec: &MCPServerEntrySpec, namespace: &str, world: &World<'_>) -> Condition {
    const CONDITION: &str = "ExternalAuthConfigValidated";
    let place = "spec.externalAuthConfigRef: MCPExternalAuthConfig";
    let Some(name) = spec.external_auth_config_ref.as_ref().map(|reference| &reference.name) else {
        return condition(
            CONDITION,
            true,
            "AuthConfigNotConfigured",
            "No MCPExternalAuthConfig is referenced".to_owned(),
        );
    };
    match world.resource(KindName::MCPExternalAuthConfig, namespace, name) {
        None => {
            let message =
                format!("{place} `{name}` not found in namespace `{namespace}`; create it, or correct the name");
            condition(CONDITION, false, "AuthConfigNotFound", message)
        }
        Some(Found::Resource(config)) => match validate(config, world) {
            Ok(()) => condition(CONDITION, true, "AuthConfigValid", format!("MCPExternalAuthConfig `{name}` is valid")),
            Err(invalid) => {
                condition(CONDITION, false, "AuthConfigInvalid", format!("{place} `{name}` is not valid: {invalid}"))
            }
        },
        Some(Found::Unlisted(why)) => {
            let message = format!("{place} `{name}` is not known, as objects of its kind cannot be listed: {why}");
            condition(CONDITION, false, UNLISTED, message)
        }
        Some(found) => {
            let why = if let Found::Unreadable(why) = found { why } else { "it is of another kind" };
            condition(CONDITION, false, "AuthConfigInvalid", format!("{place} `{name}` cannot be read: {why}"))
        }
    }
}

fn ca_bundle(spec: &MCPServerEntrySpec, namespace: &str, world: &World<'_>) -> Condition {
    const CONDITION: &str = "CABundleRefValidated";
    let Some(reference) = spec.ca_bundle_ref.as_ref().and_then(|bundle| bundle.config_map_ref.as_ref()) else {
        return condition(CONDITION, true, "CABundleRefNotConfigured", "No CA bundle is referenced".to_owned());
    };
    let (name, key) = (&reference.name, if reference.key.is_empty() { "ca.crt" } else { &reference.key });
    match world.config_map(namespace, name) {
        None => {
            let message = format!("spec.caBundleRef: ConfigMap `{name}` not found; create it with the key `{key}`");
            condition(CONDITION, false, "CABundleRefNotFound", message)
        }
        Some(data) if !data.contains_key(key) => {
            let message =
                format!("spec.caBundleRef: ConfigMap `{name}` has no key `{key}`; add it, or correct the key");
            condition(CONDITION, false, "CABundleRefInvalid", message)
        }
        Some(_) => condition(CONDITION, true, "CABundleRefValid", format!("CA bundle ConfigMap `{name}` exists")),
    }
}

/// Secrets and ConfigMaps that cannot exist; nothing where all of them can.
fn references(me: &Resource) -> Option<Condition> {
    let error = reference_problems(me).result().err()?;
    Some(condition("ReferencesValidated", false, "ReferenceInvalid", error.to_string()))
}

/// Nothing where no header is kept in a Secret.
fn header_secrets(spec: &MCPServerEntrySpec, namespace: &str, world: &World<'_>) -> Option<Condition> {
    const CONDITION: &str = "HeaderSecretRefsValidated";
    let headers = &spec.header_forward.as_ref()?.add_headers_from_secret;
    if headers.is_empty() {
        return None;
    }
    let mut problems = Problems::default();
    for (index, header) in headers.iter().enumerate() {
        let place = format!("spec.headerForward.addHeadersFromSecret[{index}].valueSecretRef");
        let (name, key) = (&header.value_secret_ref.name, &header.value_secret_ref.key);
        match world.secret(namespace, name) {
            None => problems.add(place, format_args!("Secret `{name}` not found; create it with the key `{key}`")),
            Some(keys) => problems.unless(
                keys.contains_key(key),
                place,
                format_args!("Secret `{name}` has no key `{key}`; add it"),
            ),
        }
    }
    Some(match problems.result() {
        Ok(()) => condition(CONDITION, true, "HeaderSecretsValid", "The Secrets of all headers exist".to_owned()),
        Err(error) => condition(CONDITION, false, "HeaderSecretNotFound", error.to_string()),
    })
}

/// Headers that cannot be put on a request; nothing where all of them can.
fn header_names(spec: &MCPServerEntrySpec) -> Option<Condition> {
    let headers = spec.header_forward.as_ref()?;
    let mut problems = Problems::default();
    problems.check("spec.headerForward", check_header_limits(headers));
    for name in headers.add_plaintext_headers.keys() {
        problems.check("spec.headerForward.addPlaintextHeaders", check_forwarded_header(name));
    }
    for (index, header) in headers.add_headers_from_secret.iter().enumerate() {
        let place = format!("spec.headerForward.addHeadersFromSecret[{index}].headerName");
        problems.check(place, check_forwarded_header(&header.header_name));
    }
    let error = problems.result().err()?;
    Some(condition("HeaderForwardValidated", false, "HeaderForwardInvalid", error.to_string()))
}

fn condition(kind: &str, holds: bool, reason: &str, message: String) -> Condition {
    Condition { kind: kind.to_owned(), status: holds.into(), reason: reason.to_owned(), message }
}

#[cfg(test)]
mod tests;
