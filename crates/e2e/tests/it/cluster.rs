//! The cluster under test: a namespace per test, and waiting for its pods.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, LogParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::de::DeserializeOwned;
use skep_testkit::{Seen, eventually};

/// What every failure to find a cluster ends with.
const ADVICE: &str = "run `cargo xtask e2e`, which starts one and puts our images into it";

/// Pulling is never involved, but a busy machine starts containers slowly.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A namespace of our own in the cluster.
pub(crate) struct Cluster {
    client: kube::Client,
    namespace: String,
}

/// The image of the product.
pub(crate) fn product_image() -> Result<String> {
    image("SKEP_E2E_IMAGE")
}

/// The image of the fixture, `skep-fixture`.
pub(crate) fn fixture_image() -> Result<String> {
    image("SKEP_E2E_FIXTURE_IMAGE")
}

/// The same image under another name: what a server is changed to.
pub(crate) fn next_image() -> Result<String> {
    image("SKEP_E2E_NEXT_IMAGE")
}

fn image(variable: &str) -> Result<String> {
    std::env::var(variable).with_context(|| format!("{variable} names no image: {ADVICE}"))
}

impl Cluster {
    /// Connects to the cluster that `cargo xtask e2e` chose. No other variable or file counts: a test run by accident
    /// must not touch a cluster that is in use.
    pub(crate) async fn connect(prefix: &str) -> Result<Self> {
        skep_testkit::install_crypto_provider();
        let Some(path) = std::env::var_os("SKEP_E2E_KUBECONFIG") else { bail!("no cluster was chosen: {ADVICE}") };
        let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("no kubeconfig: {ADVICE}"))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        let metadata = ObjectMeta { generate_name: Some(format!("skep-e2e-{prefix}-")), ..ObjectMeta::default() };
        let wanted = Namespace { metadata, ..Namespace::default() };
        let namespaces = Api::<Namespace>::all(client.clone());
        let made = async { namespaces.create(&PostParams::default(), &wanted).await };
        let made = tokio::time::timeout(Duration::from_secs(20), made).await;
        let made = made.with_context(|| format!("the cluster does not answer: {ADVICE}"))?;
        let made = made.with_context(|| format!("the cluster is not reachable: {ADVICE}"))?;
        let namespace = made.metadata.name.context("the API server made a namespace without a name")?;
        let cluster = Self { client, namespace };
        cluster.wait_for_service_account().await?;
        Ok(cluster)
    }

    /// The service account of a new namespace is created asynchronously, and pods are refused until then.
    async fn wait_for_service_account(&self) -> Result<()> {
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        eventually("the namespace to have its service account", PATIENCE, || async {
            let found = accounts.get_opt("default").await?;
            Ok(found.map_or_else(|| Seen::NotYet("none".to_owned()), |_| Seen::Yes(())))
        })
        .await
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Waits until something holds.
    pub(crate) async fn until<Look, Found>(&self, what: &str, mut look: Look) -> Result<()>
    where
        Look: FnMut() -> Found,
        Found: Future<Output = Result<bool>>,
    {
        eventually(what, PATIENCE, || {
            let looked = look();
            async { Ok(if looked.await? { Seen::Yes(()) } else { Seen::NotYet("not yet".to_owned()) }) }
        })
        .await
    }

    /// Fails if a container of the pods with these labels was restarted.
    pub(crate) async fn no_restarts(&self, labels: &str) -> Result<()> {
        let pods = self.pods().list(&kube::api::ListParams::default().labels(labels)).await?;
        if pods.items.is_empty() {
            bail!("no pod has the labels `{labels}`");
        }
        for pod in pods {
            let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            if let Some(container) = containers.into_iter().find(|container| container.restart_count > 0) {
                bail!("container `{}` was started again {} times", container.name, container.restart_count);
            }
        }
        Ok(())
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Creates an object from its manifest.
    pub(crate) async fn create<K>(&self, manifest: serde_json::Value) -> Result<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned + serde::Serialize,
    {
        let object: K = serde_json::from_value(manifest).context("the manifest does not parse")?;
        let api = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(api.create(&PostParams::default(), &object).await?)
    }

    /// Waits until the readiness probes of a pod's containers pass.
    pub(crate) async fn wait_until_ready(&self, pod: &str) -> Result<()> {
        self.wait_for_pod(pod, "ready", |pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
        .await
    }

    /// Waits until all of a pod's containers terminated successfully.
    pub(crate) async fn wait_until_done(&self, pod: &str) -> Result<()> {
        self.wait_for_pod(pod, "done", |pod| phase(pod) == Some("Succeeded")).await
    }

    async fn wait_for_pod(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Result<()> {
        let pods = self.pods();
        eventually(&format!("pod `{name}` in `{}` to be {what}", self.namespace), PATIENCE, || async {
            let pod = pods.get(name).await?;
            let status = serde_json::to_string(&pod.status)?;
            if holds(&pod) {
                return Ok(Seen::Yes(()));
            }
            if phase(&pod) == Some("Failed") {
                bail!("it failed: {status}");
            }
            if status.contains("ErrImageNeverPull") {
                bail!("an image is not on the node: {ADVICE}; {status}");
            }
            Ok(Seen::NotYet(status))
        })
        .await
    }

    /// The log of a container.
    pub(crate) async fn logs(&self, pod: &str, container: &str) -> Result<String> {
        let parameters = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        let logs = self.pods().logs(pod, &parameters).await;
        logs.with_context(|| format!("no logs of `{container}` in pod `{pod}` of `{}`", self.namespace))
    }

    /// Removes the namespace. Not called after a failure, so that it can be inspected.
    pub(crate) async fn remove(self) -> Result<()> {
        Api::<Namespace>::all(self.client).delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}
