//! Where the server behind a proxy runs.

use skep_address::name::{in_namespace, is_of_cluster};
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
        /// What kind of cluster it is, if it is configured. Its API is asked otherwise.
        platform: Option<Platform>,
    },
    /// On this machine, as a process, beside others that have ports of their own.
    Machine(Ports),
    /// Elsewhere, at a remote URL, while this proxy is in a pod: nothing is started, and the pod's own addresses are not dialled.
    Pod {
        /// The namespace of the pod, as far as it is known.
        namespace: Option<String>,
    },
}

impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster { namespace, .. } => formatter.debug_tuple("Cluster").field(namespace).finish(),
            Self::Machine(_) => formatter.write_str("Machine"),
            Self::Pod { namespace } => formatter.debug_tuple("Pod").field(namespace).finish(),
        }
    }
}

// === impl Place ===

impl Place {
    /// What may be dialled from here: a pod's loopback addresses are what else runs in it, a user's are the user's own servers.
    pub(super) const fn addresses(&self) -> Addresses {
        match self {
            Self::Machine(_) => Addresses::Machine,
            Self::Cluster { .. } | Self::Pod { .. } => Addresses::Cluster,
        }
    }

    /// The URL of a remote server as it is asked for, and what may be dialled for it: in a pod, private addresses only where the resource
    /// allows them, or where the name is that of a Service. A name of a single part is one of the pod's own namespace, and asked for in
    /// full: a search domain of the node could complete it to another host.
    pub(super) fn remote(&self, config: &RunConfig) -> (String, Addresses) {
        let url = config.remote_url.clone();
        if matches!(self, Self::Machine(_)) {
            return (url, Addresses::Machine);
        }
        if config.allow_private_endpoint {
            return (url, Addresses::Cluster);
        }
        let host = url::Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned));
        if host.as_deref().is_some_and(is_of_cluster) {
            return (url, Addresses::Cluster);
        }
        let in_full = || {
            let host = host.as_deref()?;
            with_host(&url, host, &in_namespace(host, self.namespace()?)?)
        };
        match in_full() {
            Some(in_full) => (in_full, Addresses::Cluster),
            None => (url, Addresses::PublicOnly),
        }
    }

    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Cluster { namespace, .. } => Some(namespace),
            Self::Pod { namespace } => namespace.as_deref(),
            Self::Machine(_) => None,
        }
    }
}

/// A URL with another host, and all else as it is written.
fn with_host(url: &str, host: &str, other: &str) -> Option<String> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let (written, rest) = rest.split_at_checked(host.len())?;
    let is_whole = rest.is_empty() || rest.starts_with([':', '/', '?', '#']);
    (is_whole && written.eq_ignore_ascii_case(host)).then(|| format!("{scheme}://{other}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item 17-12: the default under which Services of the cluster work, and the option of the resource.
    #[test]
    fn a_remote_server_is_dialled_where_its_resource_allows_it() {
        let machine = Place::Machine(Ports::default());
        let pod = Place::Pod { namespace: Some("team".to_owned()) };
        for (url, allow_private_endpoint, asked, in_pod) in [
            ("https://mcp.example.com/mcp", false, None, Addresses::PublicOnly),
            ("https://mcp.example.com/mcp", true, None, Addresses::Cluster),
            ("http://server.other.svc:8080", false, None, Addresses::Cluster),
            ("http://server:8080", false, Some("http://server.team.svc:8080"), Addresses::Cluster),
            ("http://Server/mcp?a=b", false, Some("http://server.team.svc/mcp?a=b"), Addresses::Cluster),
            ("http://server", false, Some("http://server.team.svc"), Addresses::Cluster),
            ("http://server:8080", true, None, Addresses::Cluster),
            ("http://metadata/x", false, None, Addresses::PublicOnly),
            ("http://localhost", false, None, Addresses::PublicOnly),
            ("http://server@server", false, None, Addresses::PublicOnly),
            ("http://server.team:8080", false, None, Addresses::PublicOnly),
            ("http://server.team:8080", true, None, Addresses::Cluster),
            ("http://10.0.0.1", false, None, Addresses::PublicOnly),
            ("http://[fd12::1]", false, None, Addresses::PublicOnly),
        ] {
            let config = RunConfig { remote_url: url.to_owned(), allow_private_endpoint, ..RunConfig::default() };
            assert_eq!(pod.remote(&config), (asked.unwrap_or(url).to_owned(), in_pod), "{url}");
            assert_eq!(machine.remote(&config), (url.to_owned(), Addresses::Machine), "{url}");
        }
        // Without a namespace, nothing says that it is a Service.
        let config = RunConfig { remote_url: "http://server:8080".to_owned(), ..RunConfig::default() };
        let nowhere = Place::Pod { namespace: None };
        assert_eq!(nowhere.remote(&config), ("http://server:8080".to_owned(), Addresses::PublicOnly));
        assert_eq!((pod.addresses(), machine.addresses()), (Addresses::Cluster, Addresses::Machine));
    }
}
