//! `skep vmcp`: many MCP servers as one, as the operator starts it or people do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use skep_api::virtual_config::AuditSettings;
use skep_runconfig::GoDuration;
use skep_vmcp::config::Config;
use skep_vmcp::run::ServeOptions;

use super::proxy::{ACCOUNT, GRACE, is_in_pod, is_true, stop_signal};
use super::variables;
use crate::cli::{VmcpServe, VmcpValidate};
use crate::logs;

/// The component of an audit log that no configuration names.
const COMPONENT: &str = "vmcp-server";

pub(super) fn serve(arguments: &VmcpServe) -> Result<ExitCode> {
    let environment = variables();
    let config = read(arguments.config.as_ref())?;
    let config = if arguments.enable_audit { with_audit(&config)? } else { config };
    let json = environment.get("UNSTRUCTURED_LOGS").is_none_or(|text| !is_true(text));
    logs::start_at(json, if arguments.debug { "debug" } else { "info" })?;
    let options = ServeOptions {
        host: arguments.host.clone(),
        port: arguments.port,
        session_ttl: session_ttl(arguments.session_ttl.as_deref())?,
        in_pod: is_in_pod(&environment, Path::new(ACCOUNT)),
        grace: GRACE,
    };
    serve_until_stopped(&config, &environment, &options)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn validate(arguments: &VmcpValidate) -> Result<ExitCode> {
    let config = read(arguments.config.as_ref())?;
    let summary = config.summary();
    let lines: Vec<String> = summary.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    crate::terminal::print(&format!("the configuration is valid\n{}", lines.concat()))?;
    Ok(ExitCode::SUCCESS)
}

#[tokio::main(flavor = "current_thread")]
async fn serve_until_stopped(
    config: &Config,
    environment: &BTreeMap<String, String>,
    options: &ServeOptions,
) -> Result<()> {
    let stopped = stop_signal()?;
    let serving = skep_vmcp::run::serve(config, environment, options).await?;
    tracing::info!(address = %serving.address(), backends = serving.backends.all().len(), "serving");
    stopped.await;
    tracing::info!("draining, finishing requests in flight");
    let drained = serving.end().await;
    tracing::info!(cut = drained.cut, "stopped");
    Ok(())
}

fn read(path: Option<&PathBuf>) -> Result<Config> {
    let Some(path) = path else { bail!("no configuration file specified, use --config flag") };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Config::from_yaml(&text).with_context(|| path.display().to_string())
}

/// The same configuration with an audit log, unless it has one.
fn with_audit(config: &Config) -> Result<Config> {
    let mut document = config.document().clone();
    if document.audit.is_none() {
        let audit = serde_json::json!({ "enabled": true, "component": COMPONENT });
        document.audit = Some(serde_json::from_value::<AuditSettings>(audit)?);
    }
    Ok(Config::new(document)?)
}

/// How long an idle session lives. Nothing for the usual time.
fn session_ttl(text: Option<&str>) -> Result<Option<Duration>> {
    let Some(text) = text else { return Ok(None) };
    let given: GoDuration = text.parse().with_context(|| format!("--session-ttl: `{text}`"))?;
    match given.to_std() {
        Some(time) => Ok(Some(time).filter(|time| !time.is_zero())),
        None => bail!("session-ttl must be non-negative, got {text}"),
    }
}
