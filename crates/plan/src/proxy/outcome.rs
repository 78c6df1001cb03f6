//! What planning the children of a proxy comes to, and the conditions that all proxies share.

use serde_json::Value;
use skep_api::resource::Resource;
use skep_api::schema::Object;
use skep_runconfig::feature::Feature;

use super::{ProxyContext, ProxyPlan};
use crate::child::Child;
use crate::error::{PlanError, check_names};
use crate::merge::check_pod_template;
use crate::overrides::DroppedOverrides;
use crate::plan::{Plan, Verdict};
use crate::pod::PodStamps;
use crate::readiness::set_url;
use crate::status::Status;
use crate::support;

/// The planned children, or why there are none to apply: all conditions follow from it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) children: Vec<Child>,
    pub(crate) proxy: Option<ProxyPlan>,
    /// Why the children are not applied, if they are not.
    pub(crate) error: Option<PlanError>,
}

impl Outcome {
    /// Whether the children are applied.
    pub(crate) fn verdict(&self) -> Verdict {
        self.error.as_ref().map_or(Verdict::Apply, PlanError::verdict)
    }

    /// The stamps of the pods that this plan asks for, if it has any.
    pub(crate) fn stamps(&self) -> Option<PodStamps> {
        PodStamps::planned(&self.children)
    }

    /// The reason of `Ready` for a plan that is not applied: that of the kind, unless the spec is not the cause.
    pub(crate) fn refusal_reason(&self, of_the_kind: &'static str) -> &'static str {
        match &self.error {
            Some(error @ PlanError::Unsupported(_)) => error.reason(),
            Some(error) if error.is_of_cluster() => error.reason(),
            _ => of_the_kind,
        }
    }

    /// Whether the configuration is the cause, and not a cluster that does not take the children.
    pub(crate) fn is_misconfigured(&self) -> bool {
        self.error.as_ref().is_some_and(|error| !error.is_of_cluster())
    }

    /// The plan with a finished status.
    pub(crate) fn into_plan(self, me: &Resource, status: Status) -> Plan {
        let mut plan = Plan::without_children(me, status);
        plan.verdict = self.verdict();
        plan.children = self.children;
        plan.proxy = self.proxy.map(Box::new);
        plan
    }
}

// === impl ProxyContext ===

impl ProxyContext<'_> {
    /// The children, unless something failed before, fails while they are built, or the cluster does not take them; with the conditions
    /// about features that are not in force and overrides that were dropped.
    pub(crate) fn children_unless(
        &self,
        failure: Option<PlanError>,
        status: &mut Status,
        build: impl FnOnce(&mut DroppedOverrides) -> Result<(ProxyPlan, Vec<Child>), PlanError>,
    ) -> Outcome {
        support::report(status, &self.observing_features(), self.world.settings);
        if self.traces_nowhere() {
            let message = "spec.telemetryConfigRef: the MCPTelemetryConfig enables tracing and has no endpoint; set openTelemetry.endpoint";
            status.condition("TracingInForce", false, "NoEndpoint", message);
        }
        if failure.is_some() {
            return Outcome { children: Vec::new(), proxy: None, error: failure };
        }
        let mut dropped = DroppedOverrides::default();
        let result = self.check_override_env().and_then(|()| build(&mut dropped));
        dropped.report(status);
        match result {
            Err(error) => Outcome { children: Vec::new(), proxy: None, error: Some(error) },
            Ok((proxy, children)) => {
                Outcome { children, proxy: Some(proxy), error: check_names(self.me, self.world).err() }
            }
        }
    }

    /// Writes the URL of the proxy to the status.
    pub(crate) fn set_url(&self, status: &mut Status, url: String, verdict: &Verdict) {
        set_url(status, url, verdict, &(self.kind.service)(self.me.name()), self.world.live);
    }

    /// Whether traces are asked for and there is no collector to send them to.
    fn traces_nowhere(&self) -> bool {
        let otel = self.inputs.telemetry.and_then(|spec| spec.open_telemetry.as_ref()).filter(|otel| otel.enabled);
        otel.is_some_and(|otel| {
            let has_endpoint = otel.endpoint.as_deref().is_some_and(|endpoint| !endpoint.is_empty());
            otel.tracing.as_ref().is_some_and(|tracing| tracing.enabled) && !has_endpoint
        })
    }

    /// The features that only observe calls, and whether the spec asks for them.
    fn observing_features(&self) -> [(Feature, bool); 2] {
        let otel = self.inputs.telemetry.and_then(|spec| spec.open_telemetry.as_ref()).filter(|otel| otel.enabled);
        let tracing = otel.and_then(|otel| otel.tracing.as_ref()).is_some_and(|tracing| tracing.enabled);
        let metrics = otel.filter(|otel| otel.endpoint.as_deref().is_some_and(|endpoint| !endpoint.is_empty()));
        let metrics = metrics.and_then(|otel| otel.metrics.as_ref()).is_some_and(|metrics| metrics.enabled);
        [(Feature::Tracing, tracing), (Feature::MetricsExport, metrics)]
    }
}

/// Writes a condition about the user's pod template, and refuses one that is invalid.
pub(crate) fn check_template(status: &mut Status, template: Option<&Object>) -> Option<PlanError> {
    let template = template?;
    match check_pod_template(&Value::Object(template.0.clone())) {
        Ok(()) => {
            status.condition("PodTemplateValid", true, "ValidPodTemplateSpec", "PodTemplateSpec is valid");
            None
        }
        Err(error) => {
            status.condition("PodTemplateValid", false, error.reason(), error.to_string());
            Some(error)
        }
    }
}

/// Writes a condition about whether several replicas share their sessions.
pub(crate) fn session_warning(status: &mut Status, replicas: i32, redis: bool) {
    if redis && replicas > 1 {
        status.condition(
            "SessionStorageWarning",
            false,
            "SessionStorageConfigured",
            "Redis session storage is configured",
        );
    } else if replicas > 1 {
        let message = "several replicas without Redis do not share sessions: set sessionStorage.provider to redis";
        status.condition("SessionStorageWarning", true, "SessionStorageMissingForReplicas", message);
    } else {
        let message = "session storage warning is not active";
        status.condition("SessionStorageWarning", false, "SessionStorageWarningNotApplicable", message);
    }
}
