//! A proxy as a process of one machine, for `skep run`.

use std::collections::BTreeSet;

use serde_json::Value;
use skep_runconfig::RunConfig;

use super::{Backend, CONTAINER, ProxyPlan};
use crate::error::PlanError;
use crate::pod::{EnvSource, FileSource, Mount, OF_PODS, Variable};
use crate::webhook;

/// Where a pod finds the ServiceAccount that it runs as.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/";

/// What a proxy and its MCP server are started with on one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyProcess {
    /// The document that the proxy reads.
    pub run_config: RunConfig,
    /// The variables of the proxy, with their sources.
    pub env: Vec<Variable>,
    /// The variables of the MCP server beside those of the RunConfig, with their sources.
    pub server_env: Vec<Variable>,
    /// The files of the proxy that come from Secrets, which it can read from memory.
    pub files: Vec<SecretFile>,
}

/// A file from a Secret, which a process without a pod has in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    /// Its path.
    pub path: String,
    /// The name of the Secret.
    pub secret: String,
    /// The key.
    pub key: String,
}

/// What a user's pod template asks for one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UserContainer {
    /// The variables that it adds.
    pub(crate) env: Vec<Variable>,
    /// The variables that it removes.
    removed: Vec<String>,
    /// Whether it takes variables from whole objects.
    has_env_from: bool,
    /// The names of the volumes of its pod.
    pub(crate) volumes: Vec<String>,
}

// === impl ProxyPlan ===

impl ProxyPlan {
    /// Renders the plan to a process; fails with what only a pod has.
    pub fn process(&self) -> Result<ProxyProcess, PlanError> {
        let own = self.pod.template.as_ref().map(|template| UserContainer::of(template, CONTAINER)).unwrap_or_default();
        self.check_files(&own)?;
        own.check_env_from()?;
        let mut env: Vec<Variable> = self.env.variables().cloned().collect();
        let stamped: BTreeSet<&str> = self.env.stamped().map(|variable| variable.name.as_str()).collect();
        let replaced = own.replaced();
        env.retain(|Variable { name, .. }| stamped.contains(name.as_str()) || !replaced.contains(name.as_str()));
        env.extend(own.env.iter().filter(|variable| !stamped.contains(variable.name.as_str())).cloned());
        let server_env = match &self.backend {
            Backend::Remote => Vec::new(),
            Backend::Server(server) => {
                server.container.check_server_volumes()?;
                server.container.check_env_from()?;
                server.container.env.clone()
            }
        };
        let is_set = |variable: &Variable| {
            let is_of_pods = OF_PODS.iter().any(|(name, _)| *name == variable.name);
            !is_of_pods && !matches!(variable.source, EnvSource::Pod(_))
        };
        env.retain(is_set);
        let server_env = server_env.into_iter().filter(|one| !matches!(one.source, EnvSource::Pod(_))).collect();
        let files = self.files.mounts().iter().filter_map(SecretFile::of).collect();
        Ok(ProxyProcess { run_config: self.run_config.clone(), env, server_env, files })
    }

    /// Refuses files that only a pod has.
    fn check_files(&self, own: &UserContainer) -> Result<(), PlanError> {
        let mounts =
            self.files.mounts().iter().filter(|mount| !mount.is_in_run_config && SecretFile::of(mount).is_none());
        let mut volumes = mounts.map(|mount| &mount.volume).chain(&own.volumes);
        if let Some(volume) = volumes.next() {
            let problem = format!("it needs the files of the volume `{volume}`, which only a pod has so far");
            return Err(PlanError::NeedsPod(problem));
        }
        let oidc = self.run_config.oidc_config.as_ref();
        let mut files = oidc.map(|oidc| [&oidc.ca_cert_path, &oidc.auth_token_file]).into_iter().flatten();
        match files.find(|file| file.starts_with(ACCOUNT)) {
            Some(file) => Err(PlanError::NeedsPod(format!(
                "it needs the file {file}, which only a pod has; use an identity provider inline"
            ))),
            None => Ok(()),
        }
    }
}

// === impl SecretFile ===

impl SecretFile {
    /// The file of a mount that a process can read from memory: those of webhooks.
    pub(crate) fn of(mount: &Mount) -> Option<Self> {
        let FileSource::Secret { name, key, file, .. } = &mount.source else { return None };
        let path = format!("{}/{file}", mount.path);
        path.starts_with(webhook::DIRECTORY).then(|| Self { path, secret: name.clone(), key: key.clone() })
    }
}

// === impl UserContainer ===

impl UserContainer {
    /// What the pod template asks for the container of this name.
    pub(crate) fn of(template: &Value, container: &str) -> Self {
        let list = |value: Option<&'_ Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        let name = |entry: &Value| entry.get("name").and_then(Value::as_str).map(str::to_owned);
        let containers = list(template.pointer("/spec/containers"));
        let mut found = Self {
            volumes: list(template.pointer("/spec/volumes")).iter().filter_map(name).collect(),
            ..Self::default()
        };
        for one in containers.iter().filter(|one| name(one).as_deref() == Some(container)) {
            found.env.extend(Variable::of_container(one));
            let is_deletion = |entry: &&Value| entry.get("$patch").is_some_and(|directive| directive == "delete");
            found.removed.extend(list(one.get("env")).iter().filter(is_deletion).filter_map(name));
            found.has_env_from |= !list(one.get("envFrom")).is_empty();
        }
        found
    }

    /// The names of the variables that it removes or sets itself.
    fn replaced(&self) -> BTreeSet<&str> {
        let set = self.env.iter().map(|variable| variable.name.as_str());
        self.removed.iter().map(String::as_str).chain(set).collect()
    }

    fn check_env_from(&self) -> Result<(), PlanError> {
        if self.has_env_from {
            let problem = "envFrom is not read here; name each key in spec.secrets or spec.env";
            return Err(PlanError::NeedsPod(problem.to_owned()));
        }
        Ok(())
    }

    fn check_server_volumes(&self) -> Result<(), PlanError> {
        let Some(volume) = self.volumes.first() else { return Ok(()) };
        Err(PlanError::NeedsPod(format!(
            "it needs the files of the volume `{volume}`; on this machine, pass their paths to the server in spec.args or spec.env"
        )))
    }
}
