//! The Roles that the operator gives to its children, rule by rule.
//!
//! Their content and order are part of the compatibility contract: other tools compare them. They hold verbs that Skep's
//! own proxies never use (`update`), so that another image may run behind the same resources.

use serde_json::{Value, json};
use skep_api::crd::GROUP;

use Verb::{Create, Delete, Get, List, Patch, Update, Watch};

/// What may be done with a resource. Sorted as it is printed; there is no wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Make one, by `POST` or by a server-side apply of something that is not there.
    Create,
    /// Remove one.
    Delete,
    /// Read one.
    Get,
    /// Read all.
    List,
    /// Change some of it: server-side apply, merge patch.
    Patch,
    /// Replace it whole. The operator only holds this to hand it on.
    Update,
    /// Watch for changes.
    Watch,
}

impl Verb {
    /// As RBAC spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

/// One rule of a child's Role.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// In the order in which they are written.
    pub resources: &'static [&'static str],
    /// In the order in which they are written.
    pub verbs: &'static [Verb],
}

/// The Role of one sort of child.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The program that gets it, for messages.
    pub bearer: &'static str,
    /// In the order in which they are written.
    pub rules: &'static [Grant],
}

/// Every Role the operator may write.
pub const ROLES: &[Role] =
    &[SERVER_PROXY, REMOTE_PROXY, VIRTUAL_SERVER_INLINE, VIRTUAL_SERVER_DISCOVERED, REGISTRY_API];

const READ: &[Verb] = &[Get, List, Watch];
const ALL: &[Verb] = &[Get, List, Watch, Create, Update, Patch, Delete];

/// `<name>-proxy-runner` of an MCPServer: it runs the server as a `StatefulSet` and attaches to it.
pub const SERVER_PROXY: Role = Role {
    bearer: "the proxy of an MCPServer",
    rules: &[
        grant("apps", &["statefulsets"], ALL),
        grant("", &["services"], ALL),
        grant("", &["pods"], READ),
        grant("", &["pods/log"], &[Get]),
        grant("", &["pods/attach"], &[Create, Get]),
        grant("", &["configmaps"], READ),
    ],
};

/// `<name>-remote-proxy-runner` of an MCPRemoteProxy.
pub const REMOTE_PROXY: Role =
    Role { bearer: "an MCPRemoteProxy", rules: &[grant("", &["configmaps"], READ), grant("", &["secrets"], READ)] };

/// `<name>-vmcp` of a VirtualMCPServer whose backends stand in its configuration.
pub const VIRTUAL_SERVER_INLINE: Role =
    Role { bearer: "a VirtualMCPServer", rules: &[OWN_VIRTUAL_SERVER, OWN_VIRTUAL_SERVER_STATUS] };

/// `<name>-vmcp` of a VirtualMCPServer that finds its backends by itself.
pub const VIRTUAL_SERVER_DISCOVERED: Role = Role {
    bearer: "a VirtualMCPServer that discovers its backends",
    rules: &[
        grant("", &["configmaps", "secrets"], READ),
        grant(
            GROUP,
            &[
                "mcpgroups",
                "mcpservers",
                "mcpremoteproxies",
                "mcpserverentries",
                "mcpexternalauthconfigs",
                "mcptoolconfigs",
            ],
            READ,
        ),
        OWN_VIRTUAL_SERVER,
        OWN_VIRTUAL_SERVER_STATUS,
    ],
};

/// `<name>-registry-api` of an MCPRegistry, which lists what runs and elects a leader of its own.
pub const REGISTRY_API: Role = Role {
    bearer: "the API of an MCPRegistry",
    rules: &[
        grant(GROUP, &["mcpservers", "mcpremoteproxies", "virtualmcpservers"], READ),
        grant("", &["services"], READ),
        grant("gateway.networking.k8s.io", &["httproutes", "gateways"], READ),
        grant("", &["configmaps"], ALL),
        grant("coordination.k8s.io", &["leases"], ALL),
        grant("events.k8s.io", &["events"], &[Create, Patch]),
    ],
};

const OWN_VIRTUAL_SERVER: Grant = grant(GROUP, &["virtualmcpservers"], &[Get]);
const OWN_VIRTUAL_SERVER_STATUS: Grant = grant(GROUP, &["virtualmcpservers/status"], &[Update, Patch]);

const fn grant(group: &'static str, resources: &'static [&'static str], verbs: &'static [Verb]) -> Grant {
    Grant { group, resources, verbs }
}

// === impl Role ===

impl Role {
    /// The rules, as a Role object holds them.
    pub fn rules(&self) -> Value {
        let rule = |grant: &Grant| {
            let verbs: Vec<&str> = grant.verbs.iter().map(|verb| verb.as_str()).collect();
            json!({ "apiGroups": [grant.group], "resources": grant.resources, "verbs": verbs })
        };
        self.rules.iter().map(rule).collect()
    }
}
