//! `skep proxy`: the process in front of one server, as the operator starts it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use skep_net::drain::Grace;
use skep_proxy::run::{Place, Ports, start};
use skep_proxy::settings::{Backend, Overrides, PLACES, Settings, find};
use skep_workload::cluster::platform;
use skep_workload::process::Program;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Cluster, Proxy};
use crate::commands::variables;
use crate::{kubernetes, logs};

/// The path of a pod's service account.
pub(super) const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The path of a pod's namespace.
const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// The time limits of a shutdown. Together they stay below the 30 s that a pod has.
pub(super) const GRACE: Grace = Grace { linger: Duration::from_secs(3), finish: Duration::from_secs(20) };

const USAGE: &str = "write `skep proxy run IMAGE`";

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct RunArguments {
    image: Option<String>,
    patch: Option<String>,
    debug: bool,
}

pub(super) fn run_until_stopped(arguments: &Proxy) -> Result<ExitCode> {
    // Flags may precede the command as well.
    let Some(command) = arguments.arguments.iter().position(|argument| !argument.starts_with('-')) else {
        crate::terminal::print(&format!("{USAGE}\n"))?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut rest = arguments.arguments.clone();
    let wanted = match rest.remove(command).as_str() {
        "run" => read(&rest),
        other => bail!("`{other}` is not a command of `skep proxy`; {USAGE}"),
    };
    let Some(image) = wanted.image else { bail!("an image is missing; {USAGE}") };
    let environment = variables();
    let debug = wanted.debug || environment.get("TOOLHIVE_DEBUG").is_some_and(|text| is_true(text));
    let json = environment.get("UNSTRUCTURED_LOGS").is_none_or(|text| !is_true(text));
    logs::start_at(json, if debug { "debug" } else { "info" })?;
    let places: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
    let config = find(&places)?;
    let settings = Settings::new(config, &Overrides { image, patch: wanted.patch }, &environment)?;
    serve(&settings, &environment)?;
    Ok(ExitCode::SUCCESS)
}

// One thread has the lowest cost per call: see `cargo xtask bench proxy`.
#[tokio::main(flavor = "current_thread")]
async fn serve(settings: &Settings, environment: &BTreeMap<String, String>) -> Result<()> {
    let asked = stop_signal()?;
    let mut asked = std::pin::pin!(asked);
    let starting = async {
        let place = place(settings, environment).await?;
        anyhow::Ok(start(settings, environment, place, GRACE).await?)
    };
    let running = tokio::select! {
        running = starting => running?,
        () = &mut asked => {
            tracing::info!("stopped before startup completed");
            return Ok(());
        }
    };
    asked.await;
    tracing::info!("draining, finishing requests in flight");
    let drained = running.end().await;
    tracing::info!(cut = drained.cut, "stopped");
    Ok(())
}

/// Waits until this process is asked to stop.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut quit = signal(SignalKind::quit()).context("cannot listen for SIGQUIT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    })
}

/// Where the server runs: in the cluster of this pod, unless its image is a program of this machine, which only a proxy
/// outside a pod runs. This makes no API request: an API server that does not respond just now is no reason to keep the
/// port closed.
async fn place(settings: &Settings, environment: &BTreeMap<String, String>) -> Result<Place> {
    let needs_cluster = match &settings.backend {
        Backend::Remote(_) | Backend::Upstream(_) => false,
        Backend::Stdio(server, _) | Backend::Http(server) => Program::of(&server.image).is_none(),
    };
    if !needs_cluster {
        if is_in_pod(environment, Path::new(ACCOUNT)) {
            return Ok(Place::Pod { namespace: namespace(environment) });
        }
        super::enable_watchdog();
        return Ok(Place::Machine(Ports::default()));
    }
    let cluster = kubernetes::connect_as(
        &Cluster { kubeconfig: None, context: None },
        "skep-proxy",
        skep_workload::client::client,
    )
    .await?;
    let variable = environment.get("OPERATOR_OPENSHIFT").map(String::as_str);
    let platform = platform(variable);
    let namespace = namespace(environment).unwrap_or_else(|| cluster.client.default_namespace().to_owned());
    Ok(Place::Cluster { client: cluster.client, namespace, platform })
}

/// The namespace of the pod that this process is in, if known.
fn namespace(environment: &BTreeMap<String, String>) -> Option<String> {
    let own = std::fs::read_to_string(NAMESPACE).ok().map(|text| text.trim().to_owned());
    let own = own.filter(|name| !name.is_empty());
    own.or_else(|| environment.get("POD_NAMESPACE").filter(|name| !name.is_empty()).cloned())
}

/// Whether this process is in a pod. Any sign suffices: each can be missing (no account is mounted), and variables can
/// be overridden.
pub(super) fn is_in_pod(environment: &BTreeMap<String, String>, account: &Path) -> bool {
    environment.contains_key("KUBERNETES_SERVICE_HOST")
        || environment.get("TOOLHIVE_RUNTIME").is_some_and(|runtime| runtime == "kubernetes")
        || account.exists()
}

/// Parses the arguments of `run`. Unknown flags are skipped, with their value if one follows.
fn read(arguments: &[String]) -> RunArguments {
    let mut wanted = RunArguments::default();
    let mut left = arguments.iter().peekable();
    while let Some(argument) = left.next() {
        if argument == "--" {
            break;
        }
        let Some(flag) = argument.strip_prefix('-') else {
            wanted.image.get_or_insert_with(|| argument.clone());
            continue;
        };
        let (name, value) = match flag.trim_start_matches('-').split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag.trim_start_matches('-'), None),
        };
        match name {
            "debug" => wanted.debug = value.is_none_or(|value| is_true(&value)),
            "k8s-pod-patch" => wanted.patch = value.or_else(|| left.next().cloned()),
            _ if value.is_none() => {
                left.next_if(|next| !next.starts_with('-'));
            }
            _ => {}
        }
    }
    wanted
}

pub(super) fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(line: &str) -> RunArguments {
        read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn any_sign_of_a_pod_counts() {
        let none = Path::new("/nonexistent");
        let with = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert!(!is_in_pod(&BTreeMap::new(), none));
        assert!(!is_in_pod(&with("TOOLHIVE_RUNTIME", "docker"), none));
        assert!(is_in_pod(&with("TOOLHIVE_RUNTIME", "kubernetes"), none));
        // Blanked by an override of the Deployment's environment.
        assert!(is_in_pod(&with("KUBERNETES_SERVICE_HOST", ""), none));
        assert!(is_in_pod(&BTreeMap::new(), Path::new("/")));
    }

    #[test]
    fn unknown_flags_are_skipped_with_their_values() {
        let image = |image: &str| RunArguments { image: Some(image.to_owned()), ..RunArguments::default() };
        for (line, expected) in [
            ("i", image("i")),
            ("--foreground=true i", image("i")),
            ("--foreground true i", image("i")),
            ("--unknown --other=1 i more", image("i")),
            ("i -- --debug", image("i")),
            ("--debug i", RunArguments { debug: true, ..image("i") }),
            ("--debug=false i", image("i")),
            ("--k8s-pod-patch={} i", RunArguments { patch: Some("{}".to_owned()), ..image("i") }),
            ("--k8s-pod-patch {} i", RunArguments { patch: Some("{}".to_owned()), ..image("i") }),
            ("--unknown", RunArguments::default()),
        ] {
            assert_eq!(wanted(line), expected, "{line}");
        }
    }
}
