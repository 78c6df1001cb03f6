//! Where the server behind a proxy runs.

use skep_address::name::is_of_cluster;
use skep_net::Addresses;
use skep_runconfig::RunConfig;
use skep_workload::objects::Platform;

use super::Ports;

/// Where the server runs.
#[derive(Clone)]
pub enum Place {
    /// In a cluster, as a StatefulSet of a namespace.
    Cluster {
        /// How to reach it.
        client: kube::Client,
        /// The namespace.
        namespace: String,
        /// What kind of cluster it is, if somebody said it. Its API is asked otherwise.
        platform: Option<Platform>,
    },
    /// On this machine, as a process, beside others that have ports of their own.
    Machine(Ports),
    /// Elsewhere, at a remote URL, while this proxy is in a pod: nothing is started, and the pod's own addresses are not dialled.
    Pod,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster { namespace, .. } => formatter.debug_tuple("Cluster").field(namespace).finish(),
            Self::Machine(_) => formatter.write_str("Machine"),
            Self::Pod => formatter.write_str("Pod"),
        }
    }
}

// === impl Place ===

impl Place {
    /// What may be dialled from here: a pod's loopback addresses are what else runs in it, a user's are the user's own servers.
    pub(super) const fn addresses(&self) -> Addresses {
        match self {
            Self::Machine(_) => Addresses::Machine,
            Self::Cluster { .. } | Self::Pod => Addresses::Cluster,
        }
    }

    /// What may be dialled for a remote server: in a pod, private addresses only where the resource allows them, or where the name is
    /// one that only the cluster's own DNS answers for.
    pub(super) fn addresses_of_remote(&self, config: &RunConfig) -> Addresses {
        let host = url::Url::parse(&config.remote_url).ok().and_then(|url| url.host_str().map(str::to_owned));
        match self {
            Self::Machine(_) => Addresses::Machine,
            _ if config.allow_private_endpoint || host.is_some_and(|host| is_of_cluster(&host)) => Addresses::Cluster,
            _ => Addresses::PublicOnly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 17-12: the default under which Services of the cluster work, and the option of the resource.
    #[test]
    fn a_remote_server_is_dialled_where_its_resource_allows_it() {
        let machine = Place::Machine(Ports::default());
        for (url, allow_private_endpoint, in_pod) in [
            ("https://mcp.example.com/mcp", false, Addresses::PublicOnly),
            ("https://mcp.example.com/mcp", true, Addresses::Cluster),
            ("http://server.team.svc:8080", false, Addresses::Cluster),
            ("http://server:8080", false, Addresses::Cluster),
            ("http://server.team:8080", false, Addresses::PublicOnly),
            ("http://server.team:8080", true, Addresses::Cluster),
            ("http://10.0.0.1", false, Addresses::PublicOnly),
            ("http://[fd12::1]", false, Addresses::PublicOnly),
        ] {
            let config = RunConfig { remote_url: url.to_owned(), allow_private_endpoint, ..RunConfig::default() };
            assert_eq!(Place::Pod.addresses_of_remote(&config), in_pod, "{url}");
            assert_eq!(machine.addresses_of_remote(&config), Addresses::Machine, "{url}");
        }
        assert_eq!((Place::Pod.addresses(), machine.addresses()), (Addresses::Cluster, Addresses::Machine));
    }
}
