//! From members and what they are called with to backends: pure, but for what it is given.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skep_net::Addresses;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::virtual_server::{self, DiscoveredMember};
use skep_plan::world::{Found, Live, Policies, PolicyError, Settings, Site, World};
use skep_proxy::unsupported::UNSUPPORTED;

use super::materials::Materials;
use crate::backend::BackendSpec;
use crate::backends::LeftOut;
use crate::config::{Config, Where};

/// The variables through which the headers of entries reach a process whose backends stand in its configuration. No member that is found gets
/// them from there.
const HEADERS: [&str; 2] = ["TOOLHIVE_HEADER_FORWARD_", "TOOLHIVE_SECRET_"];

/// Resolves the members of one group.
pub(super) struct Resolver {
    config: Config,
    environment: BTreeMap<String, String>,
    addresses: Addresses,
    namespace: String,
    settings: Settings,
}

/// No policy is asked for here.
#[derive(Debug)]
struct NoPolicies;

impl Policies for NoPolicies {
    fn check(&self, _engine: &str, _config: &Value) -> Result<(), PolicyError> {
        Ok(())
    }
}

// === impl Resolver ===

impl Resolver {
    pub(super) fn new(
        config: Config,
        mut environment: BTreeMap<String, String>,
        addresses: Addresses,
        namespace: String,
    ) -> Self {
        environment.retain(|name, _| !HEADERS.iter().any(|prefix| name.starts_with(prefix)));
        let site = if addresses == Addresses::Machine { Site::Machine } else { Site::Cluster };
        let settings = Settings {
            runner_image: String::new(),
            vmcp_image: String::new(),
            registry_image: String::new(),
            proxy_host: String::new(),
            pull_secrets: Vec::new(),
            default_redis: None,
            openshift: false,
            site,
            unsupported: BTreeSet::new(),
            unsupported_by_vmcp: Some(UNSUPPORTED.iter().copied().collect()),
        };
        Self { config, environment, addresses, namespace, settings }
    }

    /// The keys of Secrets and ConfigMaps that these members are called with.
    pub(super) fn materials(&self, found: &BTreeMap<Key, Found>) -> BTreeMap<Key, BTreeSet<String>> {
        self.in_world(found, |world| virtual_server::materials(world, &self.namespace, self.config.group()))
    }

    /// The backends that these members come to, and those that are left out.
    pub(super) fn backends(
        &self,
        mut found: BTreeMap<Key, Found>,
        materials: &Materials,
    ) -> (Vec<BackendSpec>, Vec<LeftOut>) {
        found.extend(materials.found());
        let group = self.config.group();
        let members = self.in_world(&found, |world| {
            if !virtual_server::has_group(world, &self.namespace, group) {
                tracing::warn!(group, "the group does not exist, so there are no backends");
            }
            virtual_server::discovered(world, &self.namespace, group)
        });
        let (mut specs, mut left_out) = (Vec::new(), Vec::new());
        for (name, member) in members {
            let spec = member.map_err(|error| error.to_string());
            match spec.and_then(|member| self.backend(&member, materials)) {
                Ok(spec) => specs.push(spec),
                Err(reason) => left_out.push(LeftOut { name: name.as_str().into(), reason }),
            }
        }
        (specs, left_out)
    }

    fn backend(&self, member: &DiscoveredMember, materials: &Materials) -> Result<BackendSpec, String> {
        let value = |kind: ObjectKind, name: &str, key: &str| {
            let value = materials.value(kind, &self.namespace, name, key);
            value.ok_or_else(|| format!("{kind} `{name}` has no key `{key}`, or was not read"))
        };
        let place = Where { environment: &self.environment, own: None, addresses: self.addresses };
        self.config.found(member, &value, place)
    }

    fn in_world<T>(&self, found: &BTreeMap<Key, Found>, act: impl FnOnce(&World<'_>) -> T) -> T {
        let (users, live) = (BTreeSet::new(), Live::default());
        act(&World { settings: &self.settings, found, users: &users, live: &live, policies: &NoPolicies })
    }
}
