//! The members of a group, as the backends of a virtual server.
//!
//! The entry of a member follows from its spec alone. The virtual server handles its state: a member that is briefly
//! unavailable must neither change the document nor roll the pods that read it.

use std::collections::BTreeMap;

use serde_json::json;
use skep_api::kinds::{MCPRemoteProxy, MCPServerEntrySpec, MCPServerSpec, ProxyMode, Transport};
use skep_api::reference::{NameRef, Reference, RequiredNameRef};
use skep_api::resource::Resource;
use skep_api::virtual_config::{BackendOrigin, StaticBackend};
use skep_api::workload::{HeaderForward, RemoteTransport};
use skep_bounds::ENV_VARIABLES;

use crate::canonical;
use crate::error::{MissingKey, PlanError};
use crate::key::ObjectKind;
use crate::pod::{Env, Mount};
use crate::text::{check_forwarded_headers, distinct_identifiers, remote_url, sanitise};
use crate::validate::reference_problems;
use crate::world::{Found, World};
use crate::{remote_proxy, server};

/// The fact about an entry that it may be at a private address. Others are only dialled at public ones.
pub const ALLOW_PRIVATE: &str = "allow_private_endpoint";
/// Where certificate authorities of entries are mounted.
const CA_BUNDLES: &str = "/etc/toolhive/ca-bundles";
/// The longest name of a volume.
const LONGEST_VOLUME: usize = 63;

/// A member of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    resource: &'a Resource,
    own: Own<'a>,
}

/// What is particular to each kind of member. In the order in which they are looked for: of one name, the first counts.
#[derive(Clone, Copy, Debug)]
enum Own<'a> {
    Server(&'a MCPServerSpec),
    Proxy(&'a MCPRemoteProxy),
    Entry(&'a MCPServerEntrySpec),
}

/// The members of a group, sorted by name. Those that are on their way out are none.
pub(super) fn members<'a>(world: &'a World<'_>, namespace: &str, group: &str) -> Vec<Member<'a>> {
    let mut members: BTreeMap<&str, Member<'a>> = BTreeMap::new();
    for found in world.found.values() {
        let Found::Resource(resource) = found else { continue };
        let (group_ref, own) = match resource.as_ref() {
            Resource::MCPServer(object) => (object.spec.group_ref.as_ref(), Own::Server(&object.spec)),
            Resource::MCPRemoteProxy(object) => (object.spec.group_ref.as_ref(), Own::Proxy(object)),
            Resource::MCPServerEntry(object) => (Some(&object.spec.group_ref), Own::Entry(&object.spec)),
            _ => continue,
        };
        let belongs = group_ref.is_some_and(|reference: &RequiredNameRef| reference.name == group);
        if !belongs || resource.namespace() != namespace || resource.is_deleting() {
            continue;
        }
        let member = Member { resource, own };
        let first = members.get(resource.name()).is_none_or(|known| member.own.rank() < known.own.rank());
        if first {
            members.insert(resource.name(), member);
        }
    }
    members.into_values().collect()
}

// === impl Own ===

impl Own<'_> {
    const fn rank(&self) -> u8 {
        match self {
            Self::Server(_) => 0,
            Self::Proxy(_) => 1,
            Self::Entry(_) => 2,
        }
    }
}

// === impl Member ===

impl<'a> Member<'a> {
    /// Its name.
    pub(super) fn name(&self) -> &'a str {
        self.resource.name()
    }

    /// Its namespace.
    pub(super) fn namespace(&self) -> &'a str {
        self.resource.namespace()
    }

    /// The MCPExternalAuthConfig that it names itself.
    pub(super) fn external_auth(&self) -> Option<&'a str> {
        let reference: Option<&'a NameRef> = match self.own {
            Own::Server(spec) => spec.external_auth_config_ref.as_ref(),
            Own::Proxy(object) => object.spec.external_auth_config_ref.as_ref(),
            Own::Entry(spec) => spec.external_auth_config_ref.as_ref(),
        };
        reference.map(|reference| reference.name.as_str())
    }

    /// What pods read through it: the Secrets of its headers, its certificate authorities.
    pub(super) fn inputs(&self) -> Vec<Reference> {
        match self.own {
            Own::Entry(_) => self.resource.references(),
            Own::Server(_) | Own::Proxy(_) => Vec::new(),
        }
    }

    /// Whether its controller says that there is something to call.
    pub(super) fn has_url(&self) -> bool {
        let url = match self.resource {
            Resource::MCPServer(object) => object.status.as_ref().and_then(|status| status.url.as_ref()),
            Resource::MCPRemoteProxy(object) => object.status.as_ref().and_then(|status| status.url.as_ref()),
            _ => return true,
        };
        url.is_some_and(|url| !url.is_empty())
    }

    /// As the document names it; or why it cannot stand there.
    pub(super) fn backend(&self, group: &str, world: &World<'_>) -> Result<StaticBackend, PlanError> {
        let (url, transport, workload_type, remote_url) = match self.own {
            Own::Server(spec) => (server::url(self.resource, spec), transport(spec), "mcp_server", None),
            Own::Proxy(object) => {
                let spec = &object.spec;
                (remote_proxy::base_url(self.resource, object), spec.transport, "remote_proxy", Some(&spec.remote_url))
            }
            Own::Entry(spec) => {
                self.check_entry(spec, world)?;
                (spec.remote_url.clone(), spec.transport, "server_entry", Some(&spec.remote_url))
            }
        };
        let mut metadata = BTreeMap::from([
            ("tool_type", "mcp"),
            ("workload_type", workload_type),
            ("namespace", self.resource.namespace()),
            ("group", group),
        ]);
        metadata.extend(remote_url.map(|url| ("remote_url", url.as_str())));
        if matches!(self.own, Own::Entry(spec) if spec.allow_private_endpoint) {
            metadata.insert(ALLOW_PRIVATE, "true");
        }
        Ok(StaticBackend {
            name: self.name().to_owned(),
            url,
            transport,
            origin: matches!(self.own, Own::Entry(_)).then_some(BackendOrigin::Entry),
            ca_bundle_path: self.ca_bundle().map(|(_, key)| format!("{CA_BUNDLES}/{}/{key}", self.name())),
            metadata: metadata.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    }

    /// A conflict with the headers of another entry: `a.b` and `a-b` are both `A_B` in the name of a variable,
    /// and a header that is one server's credential must never reach the other.
    pub(super) fn clash(&self, others: &BTreeMap<String, Self>) -> Option<PlanError> {
        let other = others.get(&self.owner()?)?;
        let forwards = self.header_forward().is_some() || other.header_forward().is_some();
        forwards.then(|| {
            let name = other.name();
            PlanError::InvalidSpec(format!(
                "its headers map to the same variables as those of `{name}`; rename one of them"
            ))
        })
    }

    /// How an entry is called in the names of variables; nothing for others, of which none has headers.
    pub(super) fn owner(&self) -> Option<String> {
        matches!(self.own, Own::Entry(_)).then(|| sanitise(self.name()))
    }

    /// The variables through which the headers of an entry reach the pod, unless they do not go with those of other entries: the header
    /// `A-B` of `c` and the header `A` of `b-c` arrive in one variable, and one server's credential must never reach another.
    pub(super) fn headers_beside(
        &self,
        others: &BTreeMap<String, Variable>,
    ) -> Result<BTreeMap<String, Variable>, PlanError> {
        let variables = self.headers();
        let is_taken = |name: &str, variable: &Variable| others.get(name).is_some_and(|other| other != variable);
        if let Some((name, _)) = variables.iter().find(|(name, variable)| is_taken(name, variable)) {
            let problem = format!("variable `{name}` carries a header of another entry; rename one of them");
            return Err(PlanError::InvalidHeaders(problem));
        }
        let count = others.len() + variables.len();
        if !variables.is_empty() && count > ENV_VARIABLES {
            let problem = format!(
                "with it, entries take {count} variables for their headers, and {ENV_VARIABLES} are the most; forward fewer"
            );
            return Err(PlanError::InvalidHeaders(problem));
        }
        Ok(variables)
    }

    /// The variables through which the headers of an entry reach the pod: name, and a value or a key of a Secret.
    pub(super) fn headers(&self) -> BTreeMap<String, Variable> {
        let mut variables = BTreeMap::new();
        let Some(headers) = self.header_forward() else { return variables };
        let owner = sanitise(self.name());
        let mut identifiers = BTreeMap::new();
        let own = distinct_identifiers(headers.add_headers_from_secret.iter().map(|one| one.header_name.as_str()));
        for header in &headers.add_headers_from_secret {
            let Some(own) = own.get(header.header_name.as_str()) else { continue };
            let identifier = format!("HEADER_FORWARD_{own}_{owner}");
            let secret = &header.value_secret_ref;
            let variable = Variable::Secret(secret.name.clone(), secret.key.clone());
            variables.insert(format!("TOOLHIVE_SECRET_{identifier}"), variable);
            identifiers.insert(header.header_name.clone(), identifier);
        }
        let mut manifest = serde_json::Map::new();
        if !headers.add_plaintext_headers.is_empty() {
            manifest.insert("addPlaintextHeaders".to_owned(), json!(headers.add_plaintext_headers));
        }
        if !identifiers.is_empty() {
            manifest.insert("addHeadersFromSecret".to_owned(), json!(identifiers));
        }
        if !manifest.is_empty() {
            let text = canonical::to_string(&manifest.into());
            variables.insert(format!("TOOLHIVE_HEADER_FORWARD_{owner}"), Variable::Value(text));
        }
        variables
    }

    /// The mount of an entry's certificate authorities. A pod starts without them: one entry's bundle concerns no other server.
    pub(super) fn ca_bundle_mount(&self) -> Option<Mount> {
        let (map, key) = self.ca_bundle()?;
        let path = format!("{CA_BUNDLES}/{}", self.name());
        let mount = Mount::config_map(&volume_name(self.name()), map, Some((key, key)), &path);
        Some(Mount { source: mount.source.optional(), ..mount })
    }

    fn header_forward(&self) -> Option<&'a HeaderForward> {
        match self.own {
            Own::Entry(spec) => spec.header_forward.as_ref(),
            Own::Server(_) | Own::Proxy(_) => None,
        }
    }

    /// The ConfigMap with an entry's certificate authorities, and the key.
    pub(super) fn ca_bundle(&self) -> Option<(&'a str, &'a str)> {
        let Own::Entry(spec) = self.own else { return None };
        let reference = spec.ca_bundle_ref.as_ref()?.config_map_ref.as_ref()?;
        Some((&reference.name, if reference.key.is_empty() { "ca.crt" } else { &reference.key }))
    }

    /// What would be dangerous, or would keep the pod of all servers from starting.
    fn check_entry(&self, spec: &MCPServerEntrySpec, world: &World<'_>) -> Result<(), PlanError> {
        reference_problems(self.resource).result()?;
        remote_url(&spec.remote_url, spec.allow_private_endpoint, world.settings.site)
            .map_err(|error| PlanError::InvalidRemoteUrl(error.to_string()))?;
        let Some(headers) = self.header_forward() else { return Ok(()) };
        check_forwarded_headers(headers).map_err(|error| PlanError::InvalidHeaders(error.to_string()))?;
        for header in &headers.add_headers_from_secret {
            let (secret, namespace) = (&header.value_secret_ref, self.resource.namespace());
            let field = format!("header `{}`", header.header_name);
            MissingKey::check(&field, (ObjectKind::Secret, &secret.name, &secret.key), namespace, world)
                .map_err(PlanError::MissingHeaderSecret)?;
        }
        Ok(())
    }
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// Written down.
    Value(String),
    /// A Secret and a key of it.
    Secret(String, String),
}

// === impl Variable ===

impl Variable {
    /// What of it is taken over: a value, or the name of a Secret.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Value(text) | Self::Secret(text, _) => text,
        }
    }

    /// Adds the variable to a container's.
    pub(super) fn add(&self, name: &str, env: &mut Env) {
        match self {
            Self::Value(value) => env.value(name, value),
            Self::Secret(secret, key) => env.secret(name, secret, key),
        };
    }
}

/// How the proxy of a server really speaks: only in front of a `stdio` server is that a matter of its proxy mode.
fn transport(spec: &MCPServerSpec) -> RemoteTransport {
    match (spec.transport, spec.proxy_mode) {
        (Transport::Sse, _) | (Transport::Stdio, ProxyMode::Sse) => RemoteTransport::Sse,
        (Transport::StreamableHttp, _) | (Transport::Stdio, ProxyMode::StreamableHttp) => {
            RemoteTransport::StreamableHttp
        }
    }
}

/// Names of entries may hold dots and be long; those of volumes may not. Such a name is cut, and its hash
/// makes it unique.
fn volume_name(entry: &str) -> String {
    let name = format!("ca-bundle-{entry}");
    if name.len() <= LONGEST_VOLUME && !entry.contains('.') {
        return name;
    }
    let hash: String = canonical::sha256_hex(entry.as_bytes()).chars().take(8).collect();
    let kept: String = name.replace('.', "-").chars().take(LONGEST_VOLUME - 1 - hash.len()).collect();
    format!("{}-{hash}", kept.trim_end_matches('-'))
}
