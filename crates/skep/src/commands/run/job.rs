//! From a plan to what a proxy is started with: the RunConfig, and the variables that its pod would have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use skep_api::plain::plain;
use skep_api::resource::{KindName, Resource};
use skep_plan::child::ChildKind;
use skep_plan::key::{Key, ObjectKind};
use skep_plan::names;
use skep_plan::plan::{Plan, Verdict, plan};
use skep_plan::world::{Found, Live, Settings as Platform, Site, World};
use skep_proxy::settings::{Backend, Overrides, Settings};
use skep_runconfig::RunConfig;
use skep_workload::process::{NotStarted, Program};

use super::report::{Entry, State};
use crate::commands;
use crate::commands::operator::Engines;
use crate::manifests::{Content, Manifests, Object, Place};

/// What a variable that holds a secret begins with.
const SECRET: &str = "TOOLHIVE_SECRET_";
/// What comes next where the secret is a variable of the server. No Secret's name looks like this.
const OF_SERVER: &str = "SERVER_VARIABLE_";
/// Variables that say that a proxy is in a pod.
const OF_PODS: [&str; 4] = ["XDG_CONFIG_HOME", "HOME", "TOOLHIVE_RUNTIME", "UNSTRUCTURED_LOGS"];
/// Volumes of a proxy's pod whose content stands in the RunConfig as well.
const IN_RUN_CONFIG: [&str; 3] = ["runconfig", "permission-profile", "authz-config"];
/// Where a pod finds the account that it runs as.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/";

/// A proxy to start. It cannot be shown: there are secrets in it.
pub(super) struct Job {
    pub(super) entry: Entry,
    /// Where the manifest says at which port it listens. A port that it does not say may be any other.
    pub(super) port_given_at: Option<Place>,
    pub(super) settings: Settings,
    pub(super) environment: Environment,
}

/// The variables of a proxy. Some of them are secrets.
type Environment = BTreeMap<String, String>;

/// The proxies to start, and what is not run and why.
pub(super) fn all(manifests: &Manifests) -> (Vec<Job>, Vec<Entry>) {
    let (mut jobs, mut told) = (Vec::new(), Vec::new());
    for object in &manifests.objects {
        match &object.content {
            Content::Resource(_) | Content::Data => {}
            Content::Foreign => told.push(entry(object, State::Skipped("it is no kind of Skep's".to_owned()))),
            Content::Invalid(problems) => {
                let problem = format!("{} (in {})", problems.join("; "), object.place.file());
                told.push(entry(object, State::Refused(problem)));
            }
        }
    }
    for (object, resource) in manifests.resources() {
        match job(resource, object, manifests) {
            Ok(Some(job)) => jobs.push(job),
            Ok(None) => {}
            Err(state) => told.push(entry(object, state)),
        }
    }
    (jobs, told)
}

/// What to start for a resource. Nothing for one that only says how others are run.
fn job(me: &Resource, object: &Object, manifests: &Manifests) -> Result<Option<Job>, State> {
    match me.kind() {
        KindName::MCPServer | KindName::MCPRemoteProxy => {
            proxy(me, object, manifests).map(Some).map_err(|problem| State::Refused(plain(&problem)))
        }
        KindName::EmbeddingServer | KindName::MCPRegistry | KindName::VirtualMCPServer => {
            Err(State::Skipped("this kind runs in a cluster only, so far".to_owned()))
        }
        KindName::MCPServerEntry | KindName::VirtualMCPCompositeToolDefinition => {
            Err(State::Skipped("it is for a VirtualMCPServer, which runs in a cluster only, so far".to_owned()))
        }
        KindName::MCPAuthzConfig
        | KindName::MCPExternalAuthConfig
        | KindName::MCPGroup
        | KindName::MCPOIDCConfig
        | KindName::MCPTelemetryConfig
        | KindName::MCPToolConfig
        | KindName::MCPWebhookConfig => Ok(None),
    }
}

fn proxy(me: &Resource, object: &Object, manifests: &Manifests) -> Result<Job, String> {
    let plan = planned(me, &manifests.found);
    if let Verdict::Wait(why) | Verdict::Refuse(why) = &plan.verdict {
        return Err(why.clone());
    }
    let mut config = run_config(me, &plan)?;
    let is_program = !config.remote_url.is_empty() || Program::of(&config.image).is_some();
    if !is_program {
        return Err(NotStarted::Image(config.image).to_string());
    }
    let pod = child(&plan, ChildKind::Deployment, me.name(), "/spec/template/spec").ok_or("its plan has no pod")?;
    let container = pod.pointer("/containers/0").ok_or("its plan has no container")?;
    refuse_files(&config, pod)?;
    let variables = Variables { namespace: me.namespace(), manifests };
    let mut environment: Environment = commands::variables();
    environment.extend(variables.of(container)?.into_iter().filter(|(name, _)| !OF_PODS.contains(&name.as_str())));
    if let Some(patch) = patch(container)? {
        add_server_variables(&mut config, &mut environment, &variables, &patch)?;
    }
    let overrides = Overrides { image: config.image.clone(), patch: None };
    let settings = Settings::new(config, &overrides, &environment).map_err(|error| error.to_string())?;
    let mut entry = entry(object, State::Starting);
    entry.transport = Some(transport(&settings));
    let port_given_at = object.has_port.then(|| object.place.clone());
    Ok(Job { entry, port_given_at, settings, environment })
}

/// The plan that the operator would make, but for where the proxy and its server run.
fn planned(me: &Resource, found: &BTreeMap<Key, Found>) -> Plan {
    let platform = Platform {
        runner_image: String::new(),
        vmcp_image: String::new(),
        registry_image: String::new(),
        proxy_host: "127.0.0.1".to_owned(),
        pull_secrets: Vec::new(),
        default_redis: None,
        openshift: false,
        site: Site::Machine,
        unsupported: BTreeSet::new(),
    };
    let (users, live) = (BTreeSet::new(), Live::default());
    plan(me, &World { settings: &platform, found, users: &users, live: &live, policies: &Engines })
}

fn run_config(me: &Resource, plan: &Plan) -> Result<RunConfig, String> {
    let text = child(plan, ChildKind::ConfigMap, &names::run_config(me.name()), "/data/runconfig.json");
    let text = text.and_then(Value::as_str).ok_or("its plan has no RunConfig")?;
    RunConfig::from_slice(text.as_bytes()).map_err(|error| error.to_string())
}

fn child<'a>(plan: &'a Plan, kind: ChildKind, name: &str, path: &str) -> Option<&'a Value> {
    let child = plan.children.iter().find(|child| child.kind() == kind && child.name() == name)?;
    child.body().pointer(path)
}

/// Files that only a pod has.
fn refuse_files(config: &RunConfig, pod: &Value) -> Result<(), String> {
    let volumes = names_in(pod.get("volumes"));
    if let Some(volume) = volumes.iter().find(|name| !IN_RUN_CONFIG.contains(name)) {
        return Err(format!("it needs the files of the volume `{volume}`, which only a pod has so far"));
    }
    let oidc = config.oidc_config.as_ref();
    let files = oidc.map(|oidc| [&oidc.ca_cert_path, &oidc.auth_token_file]).into_iter().flatten();
    match files.into_iter().find(|file| file.starts_with(ACCOUNT)) {
        Some(file) => Err(format!("it needs the file {file}, which only a pod has; use an identity provider inline")),
        None => Ok(()),
    }
}

/// The pod template of the server, as its proxy would get it on the command line.
fn patch(container: &Value) -> Result<Option<Value>, String> {
    let arguments = container.get("args").and_then(Value::as_array).into_iter().flatten();
    let patch = arguments.filter_map(Value::as_str).find_map(|one| one.strip_prefix("--k8s-pod-patch="));
    patch.map(|patch| serde_json::from_str(patch).map_err(|error| error.to_string())).transpose()
}

/// The variables that the server's pod template gives it. Secrets go the way on which they are never shown.
fn add_server_variables(
    config: &mut RunConfig,
    environment: &mut Environment,
    variables: &Variables<'_>,
    patch: &Value,
) -> Result<(), String> {
    if let Some(volume) = names_in(patch.pointer("/spec/volumes")).first() {
        return Err(format!(
            "it needs the files of the volume `{volume}`; on this machine, tell the server where they are in spec.args or spec.env"
        ));
    }
    let containers = patch.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    for container in containers.filter(|one| one.get("name").is_some_and(|name| name == "mcp")) {
        for (variable, value) in variables.of(container)? {
            config.secrets.push(format!("{OF_SERVER}{variable},target={variable}"));
            environment.insert(format!("{SECRET}{OF_SERVER}{variable}"), value);
        }
    }
    Ok(())
}

/// Looks up what containers get as variables.
struct Variables<'a> {
    namespace: &'a str,
    manifests: &'a Manifests,
}

impl Variables<'_> {
    /// The variables of a container. Fields of the pod itself are left out: there is none.
    fn of(&self, container: &Value) -> Result<Vec<(String, String)>, String> {
        if container.get("envFrom").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
            return Err("envFrom is not read here; name each key in spec.secrets or spec.env".to_owned());
        }
        let mut variables = Vec::new();
        for one in container.get("env").and_then(Value::as_array).into_iter().flatten() {
            let name = one.get("name").and_then(Value::as_str).unwrap_or_default();
            let value = match (one.get("value").and_then(Value::as_str), one.get("valueFrom")) {
                (Some(value), _) => Some(value.to_owned()),
                (None, Some(from)) => self.look_up(from).map_err(|why| format!("variable `{name}`: {why}"))?,
                (None, None) => Some(String::new()),
            };
            variables.extend(value.map(|value| (name.to_owned(), value)));
        }
        Ok(variables)
    }

    fn look_up(&self, from: &Value) -> Result<Option<String>, String> {
        let sources = [("secretKeyRef", ObjectKind::Secret), ("configMapKeyRef", ObjectKind::ConfigMap)];
        let Some((reference, kind)) = sources.iter().find_map(|(field, kind)| Some((from.get(field)?, *kind))) else {
            return Ok(None);
        };
        let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
        let optional = reference.get("optional").and_then(Value::as_bool).unwrap_or_default();
        self.manifests.value(kind, self.namespace, text("name"), text("key"), optional)
    }
}

/// How the server speaks.
fn transport(settings: &Settings) -> &'static str {
    match &settings.backend {
        Backend::Stdio(server, _) | Backend::Http(server) => server.speaks.name(),
        Backend::Remote(_) if settings.config.transport == "sse" => "sse",
        Backend::Remote(_) => "streamable-http",
    }
}

fn entry(object: &Object, state: State) -> Entry {
    let Object { kind, namespace, name, .. } = object.clone();
    Entry { kind, namespace, name, transport: None, url: None, state }
}

fn names_in(list: Option<&Value>) -> Vec<&str> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|one| one.get("name").and_then(Value::as_str)).collect()
}

#[cfg(test)]
mod tests;
