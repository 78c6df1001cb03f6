//! From a plan to the settings and environment of a proxy in this process.

use std::collections::{BTreeMap, BTreeSet};

use skep_api::plain::plain;
use skep_api::resource::{KindName, Resource};
use skep_plan::key::{Key, ObjectKind};
use skep_plan::plan::{Plan, Verdict, plan};
use skep_plan::pod::{EnvSource, KeySelector, Variable};
use skep_plan::proxy::{ProxyProcess, SecretFile};
use skep_plan::world::{Found, Live, Settings as Platform, Site, World};
use skep_proxy::settings::{Backend, Overrides, Settings};
use skep_proxy::unsupported::UNSUPPORTED;
use skep_webhook::MemoryFiles;
use skep_workload::process::{Program, StartError};

use super::report::{Entry, State};
use crate::commands;
use crate::commands::operator::Engines;
use crate::manifests::{Content, Manifests, Object, Place};

/// The prefix of a variable that holds a secret.
const SECRET: &str = "TOOLHIVE_SECRET_";
/// The infix where the secret is a variable of the server. No Secret's name looks like this.
const OF_SERVER: &str = "SERVER_VARIABLE_";

/// A proxy to start. It has no `Debug`: it holds secrets.
pub(super) struct LocalProxy {
    pub(super) entry: Entry,
    /// The field with its port, if the manifest sets one. Otherwise any port will do.
    pub(super) port_given_at: Option<Place>,
    pub(super) settings: Settings,
    pub(super) environment: Environment,
}

/// The environment of a proxy. Some of it is secret.
pub(super) type Environment = BTreeMap<String, String>;

/// The proxies to start, and the objects that are not run and why.
pub(super) fn all(manifests: &Manifests) -> (Vec<LocalProxy>, Vec<Entry>) {
    let (mut proxies, mut reported) = (Vec::new(), Vec::new());
    for object in &manifests.objects {
        match &object.content {
            Content::Resource(_) | Content::Data => {}
            Content::Foreign => reported.push(entry(object, State::Skipped("it is not a kind of Skep".to_owned()))),
            Content::Invalid(problems) => {
                let problem = format!("{} (in {})", problems.join("; "), object.place.file());
                reported.push(entry(object, State::Refused(problem)));
            }
        }
    }
    for (object, resource) in manifests.resources() {
        match proxy_of(resource, object, manifests) {
            Ok(Some(proxy)) => proxies.push(proxy),
            Ok(None) => {}
            Err(state) => reported.push(entry(object, state)),
        }
    }
    (proxies, reported)
}

/// The proxy of a resource. `None` for a kind that only configures others.
fn proxy_of(me: &Resource, object: &Object, manifests: &Manifests) -> Result<Option<LocalProxy>, State> {
    match me.kind() {
        KindName::MCPServer | KindName::MCPRemoteProxy => {
            proxy(me, object, manifests).map(Some).map_err(|problem| State::Refused(plain(&problem)))
        }
        KindName::EmbeddingServer | KindName::MCPRegistry => {
            Err(State::Skipped("this kind is supported only in a cluster so far".to_owned()))
        }
        KindName::MCPAuthzConfig
        | KindName::MCPExternalAuthConfig
        | KindName::MCPGroup
        | KindName::MCPOIDCConfig
        | KindName::MCPServerEntry
        | KindName::MCPTelemetryConfig
        | KindName::MCPToolConfig
        | KindName::MCPWebhookConfig
        | KindName::VirtualMCPCompositeToolDefinition
        // See `local_virtual_server`.
        | KindName::VirtualMCPServer => Ok(None),
    }
}

fn proxy(me: &Resource, object: &Object, manifests: &Manifests) -> Result<LocalProxy, String> {
    let plan = planned(me, &manifests.found);
    if let Verdict::Wait(why) | Verdict::Refuse(why) = &plan.verdict {
        return Err(why.clone());
    }
    let proxy = plan.proxy.ok_or("its plan has no proxy")?;
    let is_program = !proxy.run_config.remote_url.is_empty() || Program::of(&proxy.run_config.image).is_some();
    if !is_program {
        return Err(StartError::Image(proxy.run_config.image).to_string());
    }
    let ProxyProcess { mut run_config, env, server_env, files } = proxy.process().map_err(|error| error.to_string())?;
    let mut environment: Environment = commands::variables();
    environment.extend(values(&env, me.namespace(), manifests)?);
    // Variables of the server may be secrets, so they use the path whose values are never shown.
    for (variable, value) in values(&server_env, me.namespace(), manifests)? {
        run_config.secrets.push(format!("{OF_SERVER}{variable},target={variable}"));
        environment.insert(format!("{SECRET}{OF_SERVER}{variable}"), value);
    }
    let overrides = Overrides { image: run_config.image.clone(), patch: None };
    let mut settings = Settings::new(run_config, &overrides, &environment).map_err(|error| error.to_string())?;
    settings.files = in_memory(&files, me.namespace(), manifests)?;
    let mut entry = entry(object, State::Starting);
    entry.transport = Some(transport(&settings));
    let port_given_at = object.has_port.then(|| object.place.clone());
    Ok(LocalProxy { entry, port_given_at, settings, environment })
}

/// The plan that the operator would make, except for where the proxy and its server run.
pub(super) fn planned(me: &Resource, found: &BTreeMap<Key, Found>) -> Plan {
    in_world(found, |world| plan(me, world))
}

/// The world of this machine.
pub(super) fn in_world<T>(found: &BTreeMap<Key, Found>, act: impl FnOnce(&World<'_>) -> T) -> T {
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
        unsupported_by_vmcp: Some(UNSUPPORTED.iter().copied().collect()),
    };
    let (users, live) = (BTreeSet::new(), Live::default());
    act(&World { settings: &platform, found, users: &users, live: &live, policies: &Engines })
}

/// The values of variables. One whose optional source does not exist is left out.
pub(super) fn values(
    variables: &[Variable],
    namespace: &str,
    manifests: &Manifests,
) -> Result<Vec<(String, String)>, String> {
    let mut values = Vec::new();
    for Variable { name, source } in variables {
        let (kind, KeySelector { name: object, key, optional }) = match source {
            EnvSource::Value(value) => {
                values.push((name.clone(), value.clone()));
                continue;
            }
            EnvSource::Secret(selector) => (ObjectKind::Secret, selector),
            EnvSource::ConfigMap(selector) => (ObjectKind::ConfigMap, selector),
            // There is no pod.
            EnvSource::Pod(_) => continue,
        };
        let value = manifests.value(kind, namespace, object, key, *optional);
        let value = value.map_err(|why| format!("variable `{name}`: {why}"))?;
        values.extend(value.map(|value| (name.clone(), value)));
    }
    Ok(values)
}

/// The files of a process that come from Secrets.
pub(super) fn in_memory(files: &[SecretFile], namespace: &str, manifests: &Manifests) -> Result<MemoryFiles, String> {
    let one = |SecretFile { path, secret, key }: &SecretFile| {
        let bytes = manifests.bytes(ObjectKind::Secret, namespace, secret, key);
        bytes.map(|bytes| (path.into(), bytes.into())).map_err(|why| format!("file `{path}`: {why}"))
    };
    files.iter().map(one).collect()
}

/// The transport of the server.
fn transport(settings: &Settings) -> &'static str {
    match &settings.backend {
        Backend::Stdio(server, _) | Backend::Http(server) => server.speaks.name(),
        Backend::Remote(_) if settings.config.transport == "sse" => "sse",
        Backend::Remote(_) | Backend::Upstream(_) => "streamable-http",
    }
}

pub(super) fn entry(object: &Object, state: State) -> Entry {
    let Object { kind, namespace, name, .. } = object.clone();
    Entry { kind, namespace, name, transport: None, url: None, state }
}

#[cfg(test)]
mod tests;
