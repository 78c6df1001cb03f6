//! The one table of kinds: what each owns, how its pods are labelled, and how else it differs for the operator.
//!
//! All code that must know a kind by name reads [`entry`]: the names that are checked for other owners before a plan is made, the watches
//! of pods and backends, the owner of a pod, the edges through groups, and the operator's RBAC. So a kind is declared in one place,
//! and the code that carries plans out has no branch on a kind. What depends on a resource itself is in its plan.

use std::collections::BTreeMap;

use skep_api::kinds::DiscoveredBackend;
use skep_api::resource::{KindName, Resource};

use crate::child::ChildKind;
use crate::key::Key;
use crate::names;
use crate::plan::GeneratedSecret;
use crate::virtual_server;

/// The label by which a pod names its application.
const APP: &str = "app";
/// The recommended label for the same.
const APP_NAME: &str = "app.kubernetes.io/name";
/// The recommended label for the part of an application.
const COMPONENT: &str = "app.kubernetes.io/component";
/// The recommended label for the resource that a pod runs for.
const INSTANCE: &str = "app.kubernetes.io/instance";

/// What the operator must know of a kind.
#[derive(Clone, Copy, Debug)]
pub struct KindEntry {
    /// Every child that a plan of this kind can hold.
    pub owns: &'static [OwnedChild],
    /// Its pods, if it has any.
    pub pods: Option<PodLabels>,
    /// Whether a proxy of this kind makes a StatefulSet by itself, named after the resource.
    pub has_backend: bool,
    /// The Secret with random content that its pods read.
    pub generated_secret: Option<fn(&Resource) -> GeneratedSecret>,
    /// How it takes part in groups.
    pub group: Grouping,
    /// What its status says of a spec that is refused, beside the readiness of a kind with pods.
    pub refusal: Refusal,
}

/// The conditions and fields by which the status of a kind says that its spec is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// Conditions that are false then.
    pub conditions: &'static [&'static str],
    /// Fields, and their values.
    pub fields: &'static [(&'static str, &'static str)],
}

/// A child that plans of a kind hold.
#[derive(Clone, Copy, Debug)]
pub struct OwnedChild {
    /// Its kind.
    pub kind: ChildKind,
    /// Its name, by the name of its owner.
    pub name: fn(&str) -> String,
    when: When,
}

/// Which resources of a kind own a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// The spec names no ServiceAccount of the user.
    WithoutServiceAccount,
    /// The spec holds policies in place.
    WithInlineAuthz,
}

/// The labels that select the pods of a kind, and the resource that each of them runs for.
#[derive(Clone, Copy, Debug)]
pub struct PodLabels {
    /// What the watch of them is called.
    pub watch: &'static str,
    /// The label and the value that select them.
    pub selector: (&'static str, &'static str),
    /// The Deployment or StatefulSet that makes them.
    pub workload: ChildKind,
    /// The label that holds the name of that workload.
    workload_label: &'static str,
    /// The name of the resource, by the name of that workload, where it is another.
    owner_name: Option<fn(&str) -> Option<&str>>,
}

/// How a kind takes part in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Not at all, or as a member.
    None,
    /// It is a group.
    Group,
    /// Its plans see the members of the groups that it refers to, and all that these refer to.
    SeesMembers,
}

/// A pod by its labels: the resource that it runs for if its controller is this workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// The kind of the resource.
    pub kind: KindName,
    /// The name of the resource.
    pub name: String,
    /// The kind of the workload.
    pub workload: ChildKind,
    /// The name of the workload.
    pub workload_name: String,
}

/// The StatefulSet that a proxy makes for its MCP server. It is made with the rights of the proxy, and knows nothing of the
/// label by which children are watched.
#[derive(Clone, Copy, Debug)]
pub struct Backend;

/// What the operator must know of a kind.
pub const fn entry(kind: KindName) -> KindEntry {
    match kind {
        KindName::EmbeddingServer => EMBEDDING_SERVER,
        KindName::MCPGroup => GROUP,
        KindName::MCPRegistry => REGISTRY,
        KindName::MCPRemoteProxy => REMOTE_PROXY,
        KindName::MCPServer => SERVER,
        KindName::VirtualMCPServer => VIRTUAL_SERVER,
        KindName::MCPAuthzConfig
        | KindName::MCPExternalAuthConfig
        | KindName::MCPOIDCConfig
        | KindName::MCPTelemetryConfig
        | KindName::MCPToolConfig
        | KindName::MCPWebhookConfig => KindEntry::PLAIN,
        KindName::MCPServerEntry => SERVER_ENTRY,
        KindName::VirtualMCPCompositeToolDefinition => COMPOSITE_TOOL,
    }
}

const SERVER_ENTRY: KindEntry =
    KindEntry { refusal: Refusal { conditions: &["Valid"], fields: &[("phase", "Failed")] }, ..KindEntry::PLAIN };

const COMPOSITE_TOOL: KindEntry = KindEntry {
    refusal: Refusal { conditions: &["WorkflowValidated", "Ready"], fields: &[("validationStatus", "Invalid")] },
    ..KindEntry::PLAIN
};

const EMBEDDING_SERVER: KindEntry = KindEntry {
    owns: &[owned(ChildKind::Service, names::same), owned(ChildKind::StatefulSet, names::same)],
    pods: Some(PodLabels {
        watch: "of embedding servers",
        selector: (APP_NAME, "embeddingserver"),
        workload: ChildKind::StatefulSet,
        workload_label: INSTANCE,
        owner_name: None,
    }),
    refusal: Refusal::NONE,
    ..KindEntry::PLAIN
};

const REGISTRY: KindEntry = KindEntry {
    owns: &[
        owned(ChildKind::ServiceAccount, names::registry_account),
        owned(ChildKind::Role, names::registry_account),
        owned(ChildKind::RoleBinding, names::registry_account),
        owned(ChildKind::ConfigMap, names::registry_config),
        owned(ChildKind::Service, names::registry_api),
        owned(ChildKind::Deployment, names::registry_api),
    ],
    // By the two labels by which its Deployment selects them; no pod of another kind has both.
    pods: Some(PodLabels {
        watch: "of registries",
        selector: (COMPONENT, crate::pod::REGISTRY_COMPONENT),
        workload: ChildKind::Deployment,
        workload_label: APP_NAME,
        owner_name: Some(names::registry_of),
    }),
    refusal: Refusal::NONE,
    ..KindEntry::PLAIN
};

const REMOTE_PROXY: KindEntry = KindEntry {
    owns: &[
        without_service_account(ChildKind::ServiceAccount, names::remote_proxy_runner),
        without_service_account(ChildKind::Role, names::remote_proxy_runner),
        without_service_account(ChildKind::RoleBinding, names::remote_proxy_runner),
        with_inline_authz(ChildKind::ConfigMap, names::inline_authz),
        owned(ChildKind::ConfigMap, names::run_config),
        owned(ChildKind::Service, names::remote_proxy_service),
        owned(ChildKind::Deployment, names::same),
    ],
    pods: Some(PodLabels::of_proxy("mcpremoteproxy")),
    refusal: Refusal { conditions: &["ConfigurationValid"], fields: &[] },
    ..KindEntry::PLAIN
};

const SERVER: KindEntry = KindEntry {
    owns: &[
        owned(ChildKind::ServiceAccount, names::server_runner),
        owned(ChildKind::Role, names::server_runner),
        owned(ChildKind::RoleBinding, names::server_runner),
        without_service_account(ChildKind::ServiceAccount, names::server_account),
        with_inline_authz(ChildKind::ConfigMap, names::inline_authz),
        owned(ChildKind::Service, names::server_service),
        owned(ChildKind::ConfigMap, names::run_config),
        owned(ChildKind::Deployment, names::same),
    ],
    pods: Some(PodLabels::of_proxy("mcpserver")),
    has_backend: true,
    refusal: Refusal::NONE,
    ..KindEntry::PLAIN
};

const VIRTUAL_SERVER: KindEntry = KindEntry {
    owns: &[
        without_service_account(ChildKind::ServiceAccount, names::virtual_account),
        without_service_account(ChildKind::Role, names::virtual_account),
        without_service_account(ChildKind::RoleBinding, names::virtual_account),
        owned(ChildKind::ConfigMap, names::virtual_config),
        owned(ChildKind::Service, names::virtual_service),
        owned(ChildKind::Deployment, names::same),
    ],
    pods: Some(PodLabels::of_proxy("virtualmcpserver")),
    generated_secret: Some(virtual_server::session_key),
    group: Grouping::SeesMembers,
    refusal: Refusal { conditions: &["Valid"], fields: &[] },
    ..KindEntry::PLAIN
};

const GROUP: KindEntry = KindEntry {
    group: Grouping::Group,
    refusal: Refusal { conditions: &["Ready"], fields: &[("phase", "Failed")] },
    ..KindEntry::PLAIN
};

const fn owned(kind: ChildKind, name: fn(&str) -> String) -> OwnedChild {
    OwnedChild { kind, name, when: When::Always }
}

const fn without_service_account(kind: ChildKind, name: fn(&str) -> String) -> OwnedChild {
    OwnedChild { kind, name, when: When::WithoutServiceAccount }
}

const fn with_inline_authz(kind: ChildKind, name: fn(&str) -> String) -> OwnedChild {
    OwnedChild { kind, name, when: When::WithInlineAuthz }
}

/// The children of a resource by kind and name: exactly those that a plan of it holds unless it waits or is refused.
pub fn children_of(me: &Resource) -> impl Iterator<Item = (ChildKind, String)> {
    let owns = entry(me.kind()).owns.iter();
    owns.filter(|child| child.when.holds(me)).map(|child| (child.kind, (child.name)(me.name())))
}

/// The Secret with random content that the pods of a resource read, if they do.
pub fn generated_secret(me: &Resource) -> Option<GeneratedSecret> {
    entry(me.kind()).generated_secret.map(|secret| secret(me))
}

/// Whether a plan of a resource reads Secrets and ConfigMaps. That of one that is being deleted does not: what it releases and removes must
/// not wait for a Secret that cannot be read. One that has nothing to release or to remove is planned as before.
pub fn reads_contents(me: &Resource) -> bool {
    let is_held = me.kind().finalizer().is_some() || !entry(me.kind()).owns.is_empty();
    !(me.is_deleting() && is_held)
}

/// The watches of the pods of all kinds: what each is called, and its label selector.
pub fn pod_selectors() -> BTreeMap<&'static str, String> {
    let mut values: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for pods in KindName::ALL.iter().filter_map(|kind| entry(*kind).pods) {
        let (label, value) = pods.selector;
        values.entry((pods.watch, label)).or_default().push(value);
    }
    values.into_iter().map(|((watch, label), values)| (watch, format!("{label} in ({})", values.join(",")))).collect()
}

/// The resources that a pod may run for, by its labels. All of these may be a user's own where the operator does not set them, so the
/// controller of the pod decides.
pub fn pod_owners<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Vec<PodOwner> {
    let owner = |kind: KindName, pods: PodLabels| {
        let workload_name = label(pods.workload_label)?;
        let name = pods.owner_name.map_or(Some(workload_name), |owner_name| owner_name(workload_name))?.to_owned();
        Some(PodOwner { kind, name, workload: pods.workload, workload_name: workload_name.to_owned() })
    };
    let rows = || KindName::ALL.iter().filter_map(|kind| entry(*kind).pods.map(|pods| (*kind, pods)));
    // A component is a label of its own; the other two name the application, `app` before the recommended label.
    [(COMPONENT, true), (APP, false), (APP_NAME, false)]
        .into_iter()
        .filter_map(|(key, is_component)| {
            let value = label(key)?;
            let is_meant =
                |pods: &PodLabels| (pods.selector.0 == COMPONENT) == is_component && pods.selector.1 == value;
            rows().find(|(_, pods)| is_meant(pods)).and_then(|(kind, pods)| owner(kind, pods))
        })
        .collect()
}

/// The part of a status that another program writes and a plan reads: the backends of a virtual server and their health.
pub fn reported(me: &Resource) -> Option<&[DiscoveredBackend]> {
    match me {
        Resource::VirtualMCPServer(object) => {
            object.status.as_ref().map(|status| status.discovered_backends.as_slice())
        }
        _ => None,
    }
}

/// The part of a status that plans of other resources read: whether an embedding server serves, and where.
pub fn shown(me: &Resource) -> Option<(String, Option<String>)> {
    match me {
        Resource::EmbeddingServer(object) => {
            object.status.as_ref().map(|status| (format!("{:?}", status.phase), status.url.clone()))
        }
        _ => None,
    }
}

// === impl KindEntry ===

impl KindEntry {
    /// A kind that owns nothing.
    const PLAIN: Self = Self {
        owns: &[],
        pods: None,
        has_backend: false,
        generated_secret: None,
        group: Grouping::None,
        refusal: Refusal { conditions: &["Valid"], fields: &[] },
    };

    /// Whether a child of that kind which carries the uid of a resource of this kind goes when no plan holds it.
    pub fn prunes(&self, child: ChildKind) -> bool {
        // A backend is made and kept by its proxy, whichever its owner is.
        let is_backend = self.has_backend && child == Backend::KIND;
        !self.owns.is_empty() && !is_backend
    }
}

// === impl Refusal ===

impl Refusal {
    /// Readiness alone says it.
    const NONE: Self = Self { conditions: &[], fields: &[] };
}

// === impl PodLabels ===

impl PodLabels {
    /// The pods of a Deployment that is named after its resource.
    const fn of_proxy(app: &'static str) -> Self {
        Self {
            watch: "of proxies",
            selector: (APP, app),
            workload: ChildKind::Deployment,
            workload_label: INSTANCE,
            owner_name: None,
        }
    }
}

// === impl When ===

impl When {
    fn holds(self, me: &Resource) -> bool {
        let (account, authz) = match me {
            Resource::MCPServer(object) => (&object.spec.service_account, object.spec.authz_config.as_ref()),
            Resource::MCPRemoteProxy(object) => (&object.spec.service_account, object.spec.authz_config.as_ref()),
            Resource::VirtualMCPServer(object) => (&object.spec.service_account, None),
            _ => (&None, None),
        };
        match self {
            Self::Always => true,
            Self::WithoutServiceAccount => account.as_deref().is_none_or(str::is_empty),
            Self::WithInlineAuthz => authz.is_some_and(|authz| authz.inline.is_some()),
        }
    }
}

// === impl Backend ===

impl Backend {
    /// What it is.
    pub const KIND: ChildKind = ChildKind::StatefulSet;
    /// The label of it and of its pods that holds the name of the resource.
    pub const OWNER_LABEL: &'static str = "toolhive-name";
    /// The label selector of the StatefulSets.
    pub const SELECTOR: &'static str = "toolhive=true";

    /// The resource whose proxies make the one of this name.
    pub fn owner(namespace: &str, name: &str) -> Option<Key> {
        let kind = KindName::ALL.iter().copied().find(|kind| entry(*kind).has_backend);
        kind.map(|kind| Key::resource(kind, namespace, name))
    }

    /// The label selector of its pods: the pods of proxies have the same labels, and are selected by another one.
    pub fn pod_selector() -> String {
        let pods = KindName::ALL.iter().filter_map(|kind| entry(*kind).pods);
        let proxies: Vec<&str> = pods.filter(|pods| pods.selector.0 == APP).map(|pods| pods.selector.1).collect();
        format!("{},{},{APP} notin ({})", Self::SELECTOR, Self::OWNER_LABEL, proxies.join(","))
    }
}
