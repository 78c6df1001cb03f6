//! A namespace of a real API server, and ways to intercept a proxy's requests to it.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use skep_testkit::ControlPlane;
use skep_workload::cluster::{Cluster, MANAGER, State};
use skep_workload::objects::Platform;
use skep_workload::server::{Server, Speaks};
use tokio::sync::watch;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const GENERATION: &str = "toolhive.stacklok.dev/mcpserver-generation";

pub(crate) fn server(name: &str, generation: i64) -> Server {
    Server {
        name: name.to_owned(),
        image: "docker.io/local/everything:1".to_owned(),
        speaks: Speaks::StreamableHttp(8080),
        generation,
        ..Server::default()
    }
}

pub(crate) struct Place {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
}

impl Place {
    pub(crate) async fn new(prefix: &str) -> Result<Self> {
        let plane = ControlPlane::shared().await?;
        Ok(Self { client: skep_workload::client::client(plane.config())?, namespace: plane.namespace(prefix).await? })
    }

    pub(crate) fn cluster(&self, server: Server) -> Cluster {
        Cluster::new(self.client.clone(), &self.namespace, Platform::Kubernetes, server)
    }

    pub(crate) fn sets(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn image(&self, name: &str) -> Result<String> {
        let set = serde_json::to_value(self.sets().get(name).await?)?;
        Ok(set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) async fn status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.sets().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// The fields that proxies own, with the keys that name a uid made equal.
pub(crate) fn owned(object: &Value) -> Value {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = entries.iter().find(|entry| entry["manager"] == MANAGER && entry["operation"] == "Apply");
    let mut fields = ours.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default();
    if let Some(owners) = fields.pointer_mut("/f:metadata/f:ownerReferences") {
        *owners = json!("one");
    }
    fields
}

/// Keeps a server, and reports when it was applied.
pub(crate) fn keep(cluster: Cluster) -> (tokio::task::JoinHandle<()>, watch::Receiver<State>, watch::Receiver<bool>) {
    let ((sender, state), (report, applied)) = (watch::channel(State::Missing), watch::channel(false));
    let keeper = tokio::spawn(async move {
        let wrong =
            cluster.keep(&sender, move |failed| report.send_modify(|applied| *applied = failed.is_none())).await;
        panic!("{wrong}");
    });
    (keeper, state, applied)
}

/// Requests of one kind that are held on their way to the API server until released.
#[derive(Clone)]
pub(crate) struct Gatekeeper {
    /// How many have arrived.
    come: watch::Sender<usize>,
    may: watch::Sender<bool>,
}

impl Gatekeeper {
    pub(crate) fn new() -> Self {
        Self { come: watch::Sender::new(0), may: watch::Sender::new(false) }
    }

    /// A client whose requests of this method to such a path are held.
    pub(crate) fn between(&self, real: &kube::Client, method: hyper::Method, path: &'static str) -> kube::Client {
        let (gate, real) = (self.clone(), real.clone());
        let service = tower::service_fn(move |request: hyper::Request<kube::client::Body>| {
            let (gate, real) = (gate.clone(), real.clone());
            let waits = request.method() == method && request.uri().path().contains(path);
            async move {
                if waits {
                    gate.come.send_modify(|come| *come += 1);
                    let mut may = gate.may.subscribe();
                    may.wait_for(|may| *may).await.map_err(|error| kube::Error::Service(error.into()))?;
                }
                real.send(request).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// Waits until one has arrived.
    pub(crate) async fn has_come(&self) -> Result<()> {
        tokio::time::timeout(PATIENCE, self.come.subscribe().wait_for(|come| *come > 0)).await??;
        Ok(())
    }

    pub(crate) fn let_go(&self) {
        self.may.send_replace(true);
    }

    pub(crate) fn come(&self) -> usize {
        *self.come.borrow()
    }
}
