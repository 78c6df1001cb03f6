//! How an operator is set up: flags and environment variables, read once and checked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use skep_plan::world::{DefaultRedis, Feature, Settings, Site};

/// The image of everything, where no variable names another: one binary, one image.
const IMAGE: &str = concat!("localhost/skep:", env!("CARGO_PKG_VERSION"));
/// The image of the registry server, where no variable names another.
const REGISTRY_IMAGE: &str = "ghcr.io/stacklok/thv-registry-api:v1.3.0";

/// Everything that the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// What plans see of it.
    pub settings: Settings,
    /// The namespaces to watch; empty for all of them.
    pub namespaces: Vec<String>,
    /// The operator's own namespace.
    pub home: String,
    /// Whether stored objects are rewritten when the stored version changes.
    pub migrate: bool,
    /// Whether the platform was named; otherwise the API server is asked.
    pub platform_named: bool,
    /// Whether logs are JSON.
    pub json_logs: bool,
}

impl Environment {
    /// Reads the variables; an error names the one that is wrong.
    pub fn read(variables: &BTreeMap<String, String>) -> Result<Self> {
        let get = |name: &str| variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
        let or = |name: &str, default: &str| get(name).unwrap_or(default).to_owned();
        let list = |name: &str| -> Vec<String> {
            let items = get(name).unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty());
            items.map(str::to_owned).collect()
        };
        let namespaces = list("WATCH_NAMESPACE");
        if variables.contains_key("WATCH_NAMESPACE") && namespaces.is_empty() {
            bail!(
                "WATCH_NAMESPACE is set and names no namespace; list them with commas, or unset it to watch all of them"
            );
        }
        let secret = get("TOOLHIVE_DEFAULT_REDIS_SECRET_NAME")
            .map(|name| (name.to_owned(), or("TOOLHIVE_DEFAULT_REDIS_SECRET_KEY", "redis-password")));
        let default_redis =
            get("TOOLHIVE_DEFAULT_REDIS_ADDR").map(|address| DefaultRedis { address: address.to_owned(), secret });
        Ok(Self {
            settings: Settings {
                runner_image: or("TOOLHIVE_RUNNER_IMAGE", IMAGE),
                vmcp_image: or("VMCP_IMAGE", IMAGE),
                registry_image: or("TOOLHIVE_REGISTRY_API_IMAGE", REGISTRY_IMAGE),
                proxy_host: or("TOOLHIVE_PROXY_HOST", "0.0.0.0"),
                pull_secrets: list("TOOLHIVE_DEFAULT_IMAGE_PULL_SECRETS"),
                default_redis,
                openshift: get("OPERATOR_OPENSHIFT").is_some_and(|value| value.eq_ignore_ascii_case("true")),
                site: Site::Cluster,
                unsupported: BTreeSet::new(),
                unsupported_by_vmcp: None,
            },
            namespaces,
            home: or("POD_NAMESPACE", "toolhive-system"),
            migrate: flag("TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR", get("TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR"))?,
            platform_named: variables.contains_key("OPERATOR_OPENSHIFT"),
            json_logs: get("UNSTRUCTURED_LOGS")
                .is_some_and(|value| matches!(value, "false" | "False" | "FALSE" | "0" | "f" | "F")),
        })
    }

    /// The same, where the data plane of our own image lacks these features. What other images can do is not known here, so nothing is
    /// refused for them.
    #[must_use]
    pub fn without(mut self, unsupported: &[Feature]) -> Self {
        let lacked = |image: &str| is_own(image).then(|| unsupported.iter().copied().collect());
        self.settings.unsupported = lacked(&self.settings.runner_image).unwrap_or_default();
        self.settings.unsupported_by_vmcp = lacked(&self.settings.vmcp_image);
        self
    }
}

/// Whether an image is one of ours, wherever it was mirrored to: its name is `skep`, before the tag or the digest.
fn is_own(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split(['@', ':']).next() == Some("skep")
}

/// A boolean as Go reads it.
fn flag(name: &str, value: Option<&str>) -> Result<bool> {
    match value {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => bail!("{name}: `{other}` is neither true nor false"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment> {
        Environment::read(&variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn an_empty_environment_means_the_defaults() {
        let environment = read(&[]).unwrap();
        assert_eq!(environment.settings.proxy_host, "0.0.0.0");
        assert_eq!(environment.settings.runner_image, environment.settings.vmcp_image);
        assert!(
            environment.namespaces.is_empty() && !environment.migrate && environment.settings.default_redis.is_none()
        );
    }

    #[test]
    fn features_are_missing_from_our_own_image_only_wherever_it_is_mirrored() {
        let lacking = [Feature::Audit, Feature::EmbeddedAuthServer];
        let of = |runner: &str, vmcp: &str| {
            let variables = [("TOOLHIVE_RUNNER_IMAGE", runner), ("VMCP_IMAGE", vmcp)];
            let settings = read(&variables).unwrap().without(&lacking).settings;
            (
                settings.unsupported.into_iter().collect::<Vec<_>>(),
                settings.unsupported_by_vmcp.map(|lacked| lacked.len()),
            )
        };
        let settings = read(&[]).unwrap().without(&lacking).settings;
        assert_eq!((settings.unsupported.len(), settings.unsupported_by_vmcp.map(|lacked| lacked.len())), (2, Some(2)));
        assert_eq!(of("mirror:5000/a/skep:0.1.0", "skep@sha256:00"), (lacking.to_vec(), Some(2)));
        assert_eq!(of("ghcr.io/a/proxyrunner:1", "skep"), (Vec::new(), Some(2)));
        assert_eq!(of("localhost/skep:1", "ghcr.io/skep/vmcp:1"), (lacking.to_vec(), None));
    }

    #[test]
    fn lists_are_trimmed_and_a_secret_has_a_key() {
        let environment = read(&[
            ("WATCH_NAMESPACE", " a, b ,"),
            ("TOOLHIVE_DEFAULT_IMAGE_PULL_SECRETS", "one, ,two"),
            ("TOOLHIVE_DEFAULT_REDIS_ADDR", "redis:6379"),
            ("TOOLHIVE_DEFAULT_REDIS_SECRET_NAME", "redis"),
        ])
        .unwrap();
        assert_eq!(environment.namespaces, ["a", "b"]);
        assert_eq!(environment.settings.pull_secrets, ["one", "two"]);
        let secret = Some(("redis".to_owned(), "redis-password".to_owned()));
        assert_eq!(environment.settings.default_redis, Some(DefaultRedis { address: "redis:6379".into(), secret }));
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        for (name, value) in [("WATCH_NAMESPACE", " , "), ("TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR", "yes")] {
            assert!(read(&[(name, value)]).unwrap_err().to_string().contains(name));
        }
    }
}
