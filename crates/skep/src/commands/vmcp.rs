//! `skep vmcp`: many MCP servers as one, as the operator starts it or people do.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use skep_api::virtual_config::AuditSettings;
use skep_proxy::settings::MemoryFiles;
use skep_runconfig::{GoDuration, VirtualDocument};
use skep_vmcp::config::Config;
use skep_vmcp::discover::Cluster;
use skep_vmcp::run::{Allowed, ServeOptions};

use super::proxy::{ACCOUNT, GRACE, is_in_pod, is_true, stop_signal};
use super::variables;
use crate::cli::{VmcpInit, VmcpServe, VmcpValidate};
use crate::{kubernetes, logs};

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
        cluster: None,
        found: None,
        allowed: Allowed::default(),
        audit_output: None,
        files: MemoryFiles::default(),
    };
    serve_until_stopped(&config, &environment, options)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn validate(arguments: &VmcpValidate) -> Result<ExitCode> {
    let config = read(arguments.config.as_ref())?;
    let summary = config.summary();
    let lines: Vec<String> = summary.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    crate::terminal::print(&format!("the configuration is valid\n{}", lines.concat()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn init(arguments: &VmcpInit) -> Result<ExitCode> {
    let text = starter(&arguments.group, &arguments.backends)?;
    let Some(path) = &arguments.output else {
        crate::terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let written = write_private(path, &text).with_context(|| format!("cannot write `{}`", path.display()));
    written.map(|()| ExitCode::SUCCESS)
}

/// A configuration that `validate` accepts: each server behind its name as a prefix, and no credentials.
fn starter(group: &str, backends: &[String]) -> Result<String> {
    let mut named = BTreeMap::new();
    for backend in backends {
        let Some((name, url)) = backend.split_once('=').filter(|(name, url)| !name.is_empty() && !url.is_empty())
        else {
            bail!("--backend `{backend}`: write NAME=URL, such as notes=http://localhost:8081/mcp");
        };
        if named.insert(name, url).is_some() {
            bail!("--backend `{name}` is given twice; give each server its own name");
        }
    }
    let transport = |url: &str| if url.ends_with("/sse") { "sse" } else { "streamable-http" };
    let row = |(name, url): (&&str, &&str)| json!({ "name": name, "url": url, "transport": transport(url) });
    let mut document = json!({
        "name": format!("{group}-vmcp"),
        "groupRef": group,
        "incomingAuth": { "type": "anonymous" },
        "outgoingAuth": { "source": "inline", "default": { "type": "unauthenticated" } },
        "aggregation": {
            "conflictResolution": "prefix",
            "conflictResolutionConfig": { "prefixFormat": "{workload}_" },
        },
    });
    if let (false, Some(document)) = (named.is_empty(), document.as_object_mut()) {
        document.insert("backends".to_owned(), named.iter().map(row).collect());
    }
    let text = VirtualDocument::of(&document)?.to_yaml();
    Config::from_yaml(&text)?;
    Ok(text)
}

/// Writes a file that only its owner can read, whole or not at all: credentials will stand in it.
fn write_private(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().context("it names no file")?.to_string_lossy();
    let draft = directory.join(format!(".{name}.{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let written = written.and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        let _left_behind = std::fs::remove_file(&draft);
    }
    Ok(written?)
}

#[tokio::main(flavor = "current_thread")]
async fn serve_until_stopped(
    config: &Config,
    environment: &BTreeMap<String, String>,
    options: ServeOptions,
) -> Result<()> {
    let stopped = stop_signal()?;
    let options = ServeOptions { cluster: cluster(environment).await?, ..options };
    let serving = skep_vmcp::run::serve(config, environment, &options).await?;
    tracing::info!(address = %serving.address(), backends = serving.backends.all().len(), "serving");
    stopped.await;
    tracing::info!("draining, finishing requests in flight");
    let drained = serving.end().await;
    tracing::info!(cut = drained.cut, "stopped");
    Ok(())
}

/// The cluster in which backends are found and whose API server the status is reported to, where the environment names the namespace. This
/// makes no API request: an API server that does not respond just now is no reason to keep the port closed.
async fn cluster(environment: &BTreeMap<String, String>) -> Result<Option<Cluster>> {
    let text = |name: &str| environment.get(name).filter(|text| !text.is_empty()).cloned();
    let Some(namespace) = text("VMCP_NAMESPACE") else { return Ok(None) };
    let flags = crate::cli::Cluster { kubeconfig: None, context: None };
    let connection = kubernetes::connect_as(&flags, "skep-vmcp", skep_workload::client::client).await?;
    Ok(Some(Cluster { client: connection.client, namespace, name: text("VMCP_NAME") }))
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
        let audit = json!({ "enabled": true, "component": COMPONENT });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_configuration_is_valid_sorted_and_private() {
        let backends = ["b=https://b.example/sse".to_owned(), "a=http://localhost:1/mcp".to_owned()];
        let config = Config::from_yaml(&starter("team", &backends).unwrap()).unwrap();
        let rows: Vec<_> = config.document().backends.iter().map(|one| (one.name.as_str(), one.transport)).collect();
        let expected = [
            ("a", skep_api::workload::RemoteTransport::StreamableHttp),
            ("b", skep_api::workload::RemoteTransport::Sse),
        ];
        assert_eq!((config.name(), rows.as_slice()), ("team-vmcp", expected.as_slice()));
        assert!(starter("team", &[]).is_ok());
        for bad in ["a", "=http://a", "a=", "a=ftp://a"] {
            assert!(starter("team", &[bad.to_owned()]).is_err(), "{bad}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        for text in ["one", "two"] {
            write_private(&path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777, 0o600);
    }
}
