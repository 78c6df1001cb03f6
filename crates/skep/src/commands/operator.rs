//! `skep operator`

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::Value;
use skep_operator::metrics::Metrics;
use skep_operator::readiness::Readiness;
use skep_operator::run::{Options, RECHECK, RECONCILE_TIMEOUT, run};
use skep_operator::settings::Environment;
use skep_plan::world::{Policies, PolicyError};
use skep_proxy::unsupported::UNSUPPORTED;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::Operator;
use crate::commands::variables;
use crate::{kubernetes, logs};

/// The engines that this binary is built with.
#[derive(Debug)]
pub(super) struct Engines;

impl Policies for Engines {
    fn check(&self, engine: &str, config: &Value) -> Result<(), PolicyError> {
        skep_authz::check(engine, config).map_err(PolicyError)
    }
}

pub(super) fn run_until_stopped(arguments: &Operator) -> Result<ExitCode> {
    let environment = Environment::read(&variables())?.without(UNSUPPORTED);
    logs::start(environment.json_logs)?;
    serve(arguments, environment)?;
    Ok(ExitCode::SUCCESS)
}

// One thread is enough for the operator, and takes half the memory.
#[tokio::main(flavor = "current_thread")]
async fn serve(arguments: &Operator, environment: Environment) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let cluster = kubernetes::connect_as(&arguments.cluster, "skep-operator", kube::Client::try_from).await?;
    let options = Options {
        metrics_address: arguments.metrics_bind_address.clone(),
        health_address: arguments.health_probe_bind_address.clone(),
        leader_elect: arguments.leader_elect,
        identity: identity(),
        metrics: Metrics::new(),
        readiness: Readiness::default(),
        recheck: RECHECK,
        reconcile_timeout: RECONCILE_TIMEOUT,
    };
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Box::pin(run(cluster.client, options, environment, Box::new(Engines), stop)).await
}

/// The identity of this process in leader election: the pod's name, which is its host name, and a number that no
/// earlier process of that name had.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_unset| "skep".to_owned());
    format!("{host}_{}_{}", std::process::id(), jiff::Timestamp::now().as_nanosecond())
}
