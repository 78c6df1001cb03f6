//! The settings of a proxy: a RunConfig, the environment, the command line. Read once, checked once, typed from then on.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use skep_runconfig::GoDuration;
use skep_runconfig::run_config::RunConfig;
pub use skep_telemetry::audit::Output as AuditOutput;
use skep_upstream::Upstream;
pub use skep_webhook::MemoryFiles;
use skep_workload::gate::{GENERATION_VARIABLE, frozen};
use skep_workload::server::{Server, Speaks};

use crate::capacity::{Capacity, Role};
use crate::hosts::Hosts;
use crate::instruments::Instruments;
use crate::middleware::origin::is_origin;
use crate::router::Pages;

/// Where a RunConfig is looked for, in this order.
pub const PLACES: [&str; 3] = ["/etc/runconfig/runconfig.json", "/etc/toolhive/runconfig.json", "./runconfig.json"];
/// How long an idle session lives when nothing else is said.
const SESSION_TTL: Duration = Duration::from_hours(2);
/// How long a call on stdio may go without a word when nothing else is said.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The variable with more origins that pages may call from.
const ALLOWED_ORIGINS: &str = "SKEP_ALLOWED_ORIGINS";
/// The variable with names that a listener on loopback answers to.
const ALLOWED_HOSTS: &str = "SKEP_ALLOWED_HOSTS";

/// What is wrong with the settings of a proxy.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// There is no file.
    #[error("there is no RunConfig: looked for {}", .0.join(", "))]
    NoFile(Vec<String>),
    /// The file cannot be read.
    #[error("cannot read the RunConfig {path}: {error}")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The file is not a RunConfig.
    #[error("{path} is not a RunConfig: {error}")]
    NotARunConfig {
        /// Its path.
        path: String,
        /// Why not.
        error: String,
    },
    /// A member of the RunConfig.
    #[error("{field}: {problem}")]
    Field {
        /// Its name.
        field: &'static str,
        /// What is wrong, and what to write instead.
        problem: String,
    },
}

/// Everything that a proxy needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The document, as it was read and overridden.
    pub config: RunConfig,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Who answers.
    pub backend: Backend,
    /// How long an idle session lives.
    pub session_ttl: Duration,
    /// How long a call on stdio may go without a word.
    pub request_timeout: Duration,
    /// The watch over a server that speaks HTTP.
    pub health: Health,
    /// The names that a listener on loopback answers to, beside those of loopback.
    pub allowed_hosts: Vec<String>,
    /// How much it may hold.
    pub capacity: Capacity,
    /// Where the audit log goes, unless its configuration names a file.
    pub audit_output: AuditOutput,
    /// Files of middleware that are on no disk.
    pub files: MemoryFiles,
}

/// Who answers the calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A server that we run and that speaks on stdio, and what its clients speak.
    Stdio(Server, Mode),
    /// A server that we run and that speaks HTTP.
    Http(Server),
    /// A remote server.
    Remote(url::Url),
    /// An upstream that is there already, such as a virtual server.
    Upstream(UpstreamBackend),
}

/// An upstream that is there already, and what belongs to it on the port of the proxy.
#[derive(Clone, Debug)]
pub struct UpstreamBackend {
    /// The upstream.
    pub upstream: Arc<dyn Upstream>,
    /// The headers of clients that it gets.
    pub passthrough: Vec<HeaderName>,
    /// Its own pages.
    pub pages: Arc<dyn Pages>,
    /// What it counts and records itself.
    pub instruments: Arc<dyn Instruments>,
}

/// What the clients of a stdio server speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP with a stream of events beside it.
    Sse,
}

/// How a server that speaks HTTP is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether it is.
    pub enabled: bool,
    /// How often.
    pub interval: Duration,
    /// The timeout of one check.
    pub timeout: Duration,
}

/// Finds and reads the RunConfig: the first file that exists counts, and a broken one is an error.
pub fn find(places: &[PathBuf]) -> Result<RunConfig, SettingsError> {
    for place in places {
        match std::fs::read(place) {
            Ok(bytes) => return read(place, &bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(SettingsError::Unreadable { path: place.display().to_string(), error }),
        }
    }
    Err(SettingsError::NoFile(places.iter().map(|place| place.display().to_string()).collect()))
}

fn read(path: &Path, bytes: &[u8]) -> Result<RunConfig, SettingsError> {
    RunConfig::from_slice(bytes)
        .map_err(|error| SettingsError::NotARunConfig { path: path.display().to_string(), error: error.to_string() })
}

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The image, which always comes from there.
    pub image: String,
    /// The pod template.
    pub patch: Option<String>,
}

// === impl UpstreamBackend ===

impl PartialEq for UpstreamBackend {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.upstream, &other.upstream)
    }
}

impl Eq for UpstreamBackend {}

// === impl Settings ===

impl Settings {
    /// Puts a RunConfig, the command line and the environment together.
    pub fn new(
        config: RunConfig,
        overrides: &Overrides,
        variables: &BTreeMap<String, String>,
    ) -> Result<Self, SettingsError> {
        Self::with_backend(config, overrides, variables, backend)
    }

    /// The same with a backend that the RunConfig does not describe alone.
    pub fn with_backend(
        mut config: RunConfig,
        overrides: &Overrides,
        variables: &BTreeMap<String, String>,
        backend: impl FnOnce(&RunConfig) -> Result<Backend, SettingsError>,
    ) -> Result<Self, SettingsError> {
        let variable = |name: &str| variables.get(name).map(String::as_str);
        let frozen = frozen(variable(GENERATION_VARIABLE), config.mcpserver_generation);
        if let Some(warning) = &frozen.warning {
            tracing::warn!(warning, "ignoring malformed generation variable");
        }
        config.mcpserver_generation = frozen.generation;
        overrides.image.clone_into(&mut config.image);
        if let Some(patch) = overrides.patch.as_ref().filter(|patch| !patch.is_empty()) {
            patch.clone_into(&mut config.k8s_pod_template_patch);
        }
        if !config.env_file_dir.is_empty() {
            let more = files_of_variables(Path::new(&config.env_file_dir));
            config.env_vars.extend(more);
        }
        let backend = backend(&config)?;
        if config.stateless && matches!(backend, Backend::Stdio(..)) {
            let problem = "a stdio server cannot be stateless; use transport sse or streamable-http".to_owned();
            return Err(SettingsError::Field { field: "stateless", problem });
        }
        let is_remote = matches!(backend, Backend::Remote(_));
        let role = if matches!(backend, Backend::Upstream(_)) { Role::VirtualServer } else { Role::Proxy };
        let asked = variable("TOOLHIVE_REMOTE_HEALTHCHECKS").is_some_and(|text| matches!(text, "true" | "1"));
        let mut settings = Self {
            listen: listen(&config)?,
            session_ttl: session_ttl(&config.session_ttl)?,
            request_timeout: duration_of(variables, "TOOLHIVE_PROXY_REQUEST_TIMEOUT", REQUEST_TIMEOUT),
            health: Health {
                enabled: !is_remote || asked,
                interval: duration_of(variables, "TOOLHIVE_HEALTH_CHECK_INTERVAL", Duration::from_secs(10)),
                timeout: duration_of(variables, "TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT", Duration::from_secs(5)),
            },
            allowed_hosts: Vec::new(),
            capacity: Capacity::of_process(role, variables),
            audit_output: AuditOutput::default(),
            files: MemoryFiles::default(),
            backend,
            config,
        };
        let given = |name| listed(variables, name).collect::<Vec<_>>();
        settings.allow(&given(ALLOWED_ORIGINS), &given(ALLOWED_HOSTS))?;
        Ok(settings)
    }

    /// Lets pages of more origins call, and has a listener on loopback answer to more names.
    pub fn allow(&mut self, origins: &[String], hosts: &[String]) -> Result<(), SettingsError> {
        if let Some(origin) = origins.iter().find(|origin| !is_origin(origin)) {
            let problem =
                format!("`{origin}` is not an origin; write a scheme and a host, such as http://localhost:6274");
            return Err(SettingsError::Field { field: "allowed_origins", problem });
        }
        Hosts::of(self.listen, hosts)
            .map_err(|error| SettingsError::Field { field: "allowed_hosts", problem: error.to_string() })?;
        self.config.allowed_origins.extend_from_slice(origins);
        self.allowed_hosts.extend_from_slice(hosts);
        Ok(())
    }
}

/// The parts of a variable that holds a list with commas.
fn listed(variables: &BTreeMap<String, String>, name: &str) -> impl Iterator<Item = String> {
    let parts = variables.get(name).map(String::as_str).unwrap_or_default().split(',');
    parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned)
}

fn backend(config: &RunConfig) -> Result<Backend, SettingsError> {
    let field = |field: &'static str, problem: String| SettingsError::Field { field, problem };
    if !config.remote_url.is_empty() {
        let url = url::Url::parse(&config.remote_url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.filter(url::Url::has_host).ok_or_else(|| {
            field("remote_url", "is not a URL to call; write it like https://mcp.example.com/mcp".to_owned())
        })?;
        return Ok(Backend::Remote(url));
    }
    let port = || {
        u16::try_from(config.target_port)
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| field("target_port", format!("`{}` is not a port; write 1 to 65535", config.target_port)))
    };
    let speaks = match config.transport.as_str() {
        "stdio" => Speaks::Stdio,
        "sse" => Speaks::Sse(port()?),
        "streamable-http" => Speaks::StreamableHttp(port()?),
        other => {
            return Err(field("transport", format!("`{other}` is unknown; write stdio, sse or streamable-http")));
        }
    };
    let name = if config.container_name.is_empty() { &config.name } else { &config.container_name };
    let server = Server {
        name: name.clone(),
        image: config.image.clone(),
        args: config.cmd_args.clone(),
        env: config.env_vars.clone(),
        labels: config.container_labels.clone(),
        speaks,
        host: config.target_host.clone(),
        publish: config.publish.clone(),
        patch: config.k8s_pod_template_patch.clone(),
        replicas: config.scaling_config.as_ref().and_then(|scaling| scaling.backend_replicas),
        generation: config.mcpserver_generation,
    };
    if speaks != Speaks::Stdio {
        return Ok(Backend::Http(server));
    }
    let mode = match config.proxy_mode_in_effect() {
        "streamable-http" => Mode::StreamableHttp,
        "sse" => Mode::Sse,
        other => {
            return Err(field("proxy_mode", format!("unsupported proxy mode `{other}`; write streamable-http or sse")));
        }
    };
    Ok(Backend::Stdio(server, mode))
}

fn listen(config: &RunConfig) -> Result<SocketAddr, SettingsError> {
    let host = if config.host.is_empty() { "127.0.0.1" } else { &config.host };
    let ip: IpAddr = match host {
        "localhost" => IpAddr::from([127, 0, 0, 1]),
        other => other.trim_matches(['[', ']']).parse().map_err(|_| SettingsError::Field {
            field: "host",
            problem: format!("`{other}` is not an address to listen on; write one such as 0.0.0.0 or 127.0.0.1"),
        })?,
    };
    let port = u16::try_from(config.port).map_err(|_| SettingsError::Field {
        field: "port",
        problem: format!("`{}` is not a port; write 0 to 65535", config.port),
    })?;
    Ok(SocketAddr::new(ip, port))
}

fn session_ttl(text: &str) -> Result<Duration, SettingsError> {
    if text.is_empty() {
        return Ok(SESSION_TTL);
    }
    let wrong = || SettingsError::Field {
        field: "session_ttl",
        problem: format!("`{text}` is not a positive duration; write it like 2h or 30m"),
    };
    let read: GoDuration = text.parse().map_err(|_| wrong())?;
    match read.to_std() {
        Some(Duration::ZERO) => Ok(SESSION_TTL),
        Some(duration) => Ok(duration),
        None => Err(wrong()),
    }
}

/// A duration of the environment. What cannot be meant is warned of and not used.
fn duration_of(variables: &BTreeMap<String, String>, name: &str, default: Duration) -> Duration {
    let Some(text) = variables.get(name).filter(|text| !text.is_empty()) else { return default };
    let read = text.parse::<GoDuration>().ok().and_then(GoDuration::to_std).filter(|read| !read.is_zero());
    read.unwrap_or_else(|| {
        tracing::warn!(name, text, ?default, "ignoring a variable that is not a positive duration, such as 60s");
        default
    })
}

/// The variables of every file of a directory that is not hidden: lines `NAME=value`, `#` before comments, `export` before a
/// name is ignored. What cannot be read is warned of and left out.
fn files_of_variables(directory: &Path) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(directory) else { return variables };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    for path in paths {
        let hidden = path.file_name().and_then(|name| name.to_str()).is_none_or(|name| name.starts_with('.'));
        if hidden || !path.is_file() {
            continue;
        }
        match std::fs::read_to_string(&path) {
            Ok(text) => variables.extend(text.lines().filter_map(assignment)),
            Err(error) => tracing::warn!(path = %path.display(), %error, "skipping a file of variables"),
        }
    }
    variables
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    (!name.is_empty()).then(|| (name.to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests;
