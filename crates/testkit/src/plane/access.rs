//! What a test does with a control plane that works: namespaces, other programs, other users, the audit log.

use std::fs;

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::AuthInfo;
use serde_json::Value;

use super::ControlPlane;
use crate::assets::{Assets, Tool};
use crate::command::{self, Output};

impl ControlPlane {
    /// Makes a namespace of its own for a test. Its name is `prefix` and some letters of the API server's choice.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let made = Api::<Namespace>::all(self.client()?)
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("cannot make a namespace `{prefix}-…`"))?;
        made.metadata.name.context("the API server made a namespace without a name")
    }

    /// Runs `kubectl` as the administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Runs `kubectl` with a text on its standard input, as in `kubectl apply -f -`.
    pub async fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<Output> {
        self.run(Tool::Kubectl, arguments, input).await
    }

    /// Runs `helm` as the administrator.
    pub async fn helm(&self, arguments: &[&str]) -> Result<Output> {
        self.run(Tool::Helm, arguments, "").await
    }

    /// A configuration that acts as a service account, which must exist: its token comes from the API server.
    pub async fn as_service_account(&self, namespace: &str, name: &str) -> Result<kube::Config> {
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let answer = Api::<ServiceAccount>::namespaced(self.client()?, namespace)
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("cannot get a token of service account `{name}` in `{namespace}`"))?;
        let token = answer.status.and_then(|status| status.token);
        let token = token.context("the API server answered a token request without a token")?;
        let mut config = self.config();
        config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
        Ok(config)
    }

    /// What the audit log holds so far, oldest first; empty when none was requested.
    pub fn audit_events(&self) -> Result<Vec<Value>> {
        let Some(path) = self.audit_log() else { return Ok(Vec::new()) };
        let log = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        // The last line may be half written: it is the next call's.
        let whole = log.rfind('\n').and_then(|end| log.get(..end)).unwrap_or_default();
        whole.lines().map(|line| serde_json::from_str(line).context("a line of the audit log is not JSON")).collect()
    }

    async fn run(&self, tool: Tool, arguments: &[&str], input: &str) -> Result<Output> {
        let found = tokio::task::spawn_blocking(move || Assets::from_env()?.find(tool));
        let program = found.await.with_context(|| format!("the search for `{}` was cut off", tool.name()))??;
        let mut command = tokio::process::Command::new(program);
        // Caches and plugins of the user stay out of it.
        command.args(arguments).env("KUBECONFIG", self.kubeconfig()).env("HOME", self.directory());
        command::run(command, input.as_bytes()).await
    }
}
