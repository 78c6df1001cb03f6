//! Connecting to a cluster, with clear errors.

use anyhow::{Result, anyhow};
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::Cluster;

/// A connection to a cluster, and its address for messages.
pub(crate) struct Connection {
    pub(crate) client: Client,
    server: String,
    advice: &'static str,
}

/// The advice for an unreachable API server outside a pod.
const OUTSIDE: &str = "check the server in your kubeconfig, or pass --context";
/// The same in a pod.
const IN_A_POD: &str = "check that this pod may reach it: network policies, and the cluster's own network";

/// Connects to the cluster that the flags, the environment or the pod name.
pub(crate) async fn connect(cluster: &Cluster) -> Result<Connection> {
    connect_as(cluster, "skep", Client::try_from).await
}

/// The same, with its own user agent, which audit logs and API priority and fairness use to distinguish clients, and
/// with its own client.
pub(crate) async fn connect_as(
    cluster: &Cluster,
    agent: &str,
    make: fn(Config) -> kube::Result<Client>,
) -> Result<Connection> {
    let (mut config, advice) = config(cluster).await?;
    let agent = HeaderValue::try_from(format!("{agent}/{}", env!("CARGO_PKG_VERSION")))?;
    config.headers.push((USER_AGENT, agent));
    // At a terminal, an unreachable server is reported at once; in the operator, its own queue retries. Neither wants
    // the client to retry fifteen times in silence.
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    let client =
        make(config).map_err(|error| anyhow!("cannot set up a connection to `{server}`: {}", innermost(&error)))?;
    Ok(Connection { client, server, advice })
}

// === impl Connection ===

impl Connection {
    /// A failed request in one line: the server, the error, what to do.
    pub(crate) fn explain(&self, error: &kube::Error) -> anyhow::Error {
        let server = &self.server;
        match error {
            kube::Error::Api(status) => anyhow!("the API server at `{server}` refused: {}", status.message),
            other => anyhow!("cannot reach the API server at `{server}`: {}; {}", innermost(other), self.advice),
        }
    }
}

/// The client configuration, and the advice for when the server is unreachable.
async fn config(cluster: &Cluster) -> Result<(Config, &'static str)> {
    const ADVICE: &str = "pass --kubeconfig FILE, or set KUBECONFIG";
    let options = KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &cluster.kubeconfig {
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| {
            anyhow!("cannot read the kubeconfig `{}`: {}; {ADVICE}", path.display(), innermost(&error))
        })?;
        return Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map(|config| (config, OUTSIDE))
            .map_err(|error| anyhow!("cannot use the kubeconfig `{}`: {}", path.display(), innermost(&error)));
    }
    match Config::from_kubeconfig(&options).await {
        Ok(config) => Ok((config, OUTSIDE)),
        Err(outside) if cluster.context.is_some() || std::env::var_os("KUBECONFIG").is_some() => {
            Err(anyhow!("cannot use the kubeconfig: {}; {ADVICE}", innermost(&outside)))
        }
        Err(outside) => match Config::incluster() {
            Ok(config) => Ok((config, IN_A_POD)),
            Err(inside) if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => Err(anyhow!(
                "this pod has no service account for the API server: {}; check `automountServiceAccountToken`",
                innermost(&inside)
            )),
            Err(_not_in_a_pod) => Err(anyhow!("no cluster is configured: {}; {ADVICE}", innermost(&outside))),
        },
    }
}

/// The innermost cause of an error: the outer ones only repeat that there is one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
