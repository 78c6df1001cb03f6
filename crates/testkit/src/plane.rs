//! etcd and kube-apiserver, for one test binary or for one test.

mod access;
mod faults;
mod launch;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::OnceCell;

use crate::assets::{Assets, Tool};
use crate::process::Group;

/// A running API server with etcd behind it. Everything of it is gone when this value is dropped or the process ends.
#[derive(Debug)]
pub struct ControlPlane {
    /// Declared first: the processes end before anything else is let go.
    group: Group,
    apiserver: launch::Apiserver,
    config: kube::Config,
    kubeconfig: PathBuf,
    audit_log: Option<PathBuf>,
}

/// How a control plane is to be started.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    audit: bool,
}

impl Builder {
    /// Whether to keep an audit log: one JSON line per finished request, with its user agent, verb and object, but no
    /// bodies. Read it with [`ControlPlane::audit_events`].
    #[must_use]
    pub fn audit(mut self, audit: bool) -> Self {
        self.audit = audit;
        self
    }

    /// Starts it and returns when it answers.
    pub async fn start(self) -> Result<ControlPlane> {
        crate::install_crypto_provider();
        let assets = tokio::task::spawn_blocking(|| -> Result<_> {
            let assets = Assets::from_env()?;
            assets.ensure(&[Tool::Etcd, Tool::KubeApiserver, Tool::Kubectl])?;
            Ok((assets.find(Tool::Etcd)?, assets.find(Tool::KubeApiserver)?))
        });
        let (etcd, apiserver) = assets.await.context("the search for etcd and kube-apiserver was cut off")??;
        launch::launch(&etcd, &apiserver, self.audit).await
    }
}

impl ControlPlane {
    /// The control plane of this test binary, started by the first call. Tests share it and keep apart by
    /// [namespace](Self::namespace).
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// A control plane of one's own: for tests that break it, or that list everything in it.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// A control plane of one's own, with options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Ends it and returns when its processes and files are gone. Dropping does the same.
    pub fn stop(self) {
        drop(self);
    }

    /// A new client that may do everything. New at each call, because a client belongs to the runtime that it was made
    /// in, and every `#[tokio::test]` has a runtime of its own.
    pub fn client(&self) -> Result<kube::Client> {
        client(self.config())
    }

    /// The configuration behind [`client`](Self::client), to change before making a client: add a user agent header, or
    /// turn off `default_retry`, with which a refused call may take minutes to come back.
    pub fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// A kubeconfig file for other programs.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The ids of everything that runs for this control plane.
    pub fn pids(&self) -> Vec<u32> {
        self.group.pids()
    }

    /// Where its data, logs and certificates are.
    pub fn directory(&self) -> &Path {
        self.group.directory()
    }

    /// The audit log, if one was [requested](Builder::audit).
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }
}

fn client(config: kube::Config) -> Result<kube::Client> {
    kube::Client::try_from(config).context("cannot make a client for the test control plane")
}

/// Reads a kubeconfig value as a client configuration.
async fn client_config(kubeconfig: &serde_json::Value) -> Result<kube::Config> {
    let kubeconfig: Kubeconfig =
        serde_json::from_value(kubeconfig.clone()).context("the test kubeconfig does not parse")?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("the test kubeconfig is incomplete")
}
