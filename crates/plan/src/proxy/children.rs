//! A proxy as objects of a cluster: its ConfigMaps, its Service and its Deployment.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use skep_api::resource::Resource;
use skep_api::workload::{MetadataOverrides, SessionAffinity};
use skep_bounds::CONFIG_MAP_BYTES;
use skep_runconfig::{RunConfig, middleware};

use super::template::template;
use super::{ProxyContext, ProxyDraft, ProxyPlan};
use crate::child::{Child, ChildKind, MANAGED_LABEL};
use crate::error::PlanError;
use crate::overrides::{DroppedOverrides, PROXY_DEPLOYMENT, PROXY_SERVICE, allowed_annotations};
use crate::pod::{CONSUMED, Stamped, TEMPLATE_HASH, workload_labels};
use crate::{canonical, names, support};

/// Finishes the plan of a proxy, and renders it to the objects of a cluster in the order in which they are applied.
pub(crate) fn build(
    context: &ProxyContext<'_>,
    draft: ProxyDraft,
    dropped: &mut DroppedOverrides,
) -> Result<(ProxyPlan, Vec<Child>), PlanError> {
    let ProxyDraft { run_config, backend, pod, accounts: mut children } = draft;
    support::check(&run_config, context.world.settings)?;
    children.extend(inline_authz(context));
    let service = service(context, dropped);
    let mut plan = ProxyPlan { run_config, env: context.env(), files: context.files()?, backend, pod };
    let consumed =
        if context.kind.has_generation { Some(settle_generation(context, &mut plan, dropped)?) } else { None };
    plan.run_config.middleware_configs = middleware::list(&plan.run_config);
    let (config_map, checksum) = config_map(context, &plan.run_config)?;
    let template = template(context, &plan, &checksum, dropped)?;
    children.extend(if context.kind.config_map_first { [config_map, service] } else { [service, config_map] });
    children.push(deployment(context, &plan, template, consumed, dropped));
    Ok((plan, children))
}

/// Gives the plan its generation, and returns the digest of that and of all else that its pods consume: as long as they consume the same,
/// the generation stays.
fn settle_generation(
    context: &ProxyContext<'_>,
    plan: &mut ProxyPlan,
    dropped: &mut DroppedOverrides,
) -> Result<String, PlanError> {
    let template = template(context, plan, "", dropped)?.into_value();
    let text = format!("{}\n{}", plan.run_config.to_json_compact(), canonical::to_string(&template));
    // The digest covers the generation: a stamp that another client wrote does not fit it, and is not taken over.
    let digest = |generation: i64| canonical::sha256_hex(format!("{generation}\n{text}").as_bytes());
    let live = context.world.live.workload.as_ref();
    let stamped = live.and_then(|live| live.generation_stamp).filter(|stamp| *stamp <= context.me.generation());
    let is_consumed = |stamp: &i64| live.and_then(|live| live.consumed.as_ref()) == Some(&digest(*stamp));
    let generation = stamped.filter(is_consumed).unwrap_or_else(|| context.me.generation());
    plan.run_config.mcpserver_generation = generation;
    Ok(digest(generation))
}

/// The ConfigMap with the RunConfig, and its checksum.
fn config_map(context: &ProxyContext<'_>, config: &RunConfig) -> Result<(Child, String), PlanError> {
    let me = context.me;
    let document = config.to_json_pretty();
    skep_bounds::size(&document, CONFIG_MAP_BYTES).map_err(|error| PlanError::field("RunConfig", error))?;
    let data = BTreeMap::from([("runconfig.json".to_owned(), document)]);
    let labels: BTreeMap<String, String> = [
        ("toolhive.stacklok.io/component".to_owned(), "run-config".to_owned()),
        (format!("toolhive.stacklok.io/{}", context.kind.label), me.name().to_owned()),
        (MANAGED_LABEL.0.to_owned(), MANAGED_LABEL.1.to_owned()),
    ]
    .into();
    let checksum = canonical::content_checksum(&data, &labels, &BTreeMap::new());
    let annotations = json!({ canonical::CONTENT_CHECKSUM: checksum });
    let body = json!({ "data": data });
    let name = names::run_config(me.name());
    Ok((Child::new(me, ChildKind::ConfigMap, &name, json!(labels), annotations, body), checksum))
}

/// The ConfigMap with the policies of the spec itself.
fn inline_authz(context: &ProxyContext<'_>) -> Option<Child> {
    let me = context.me;
    let inline = context.spec.authz_config?.inline.as_ref()?;
    let document = json!({
        "version": "1.0",
        "type": "cedarv1",
        "cedar": { "policies": inline.policies, "entities_json": inline.entities_json },
    });
    let mut labels = workload_labels(me);
    labels.insert("toolhive.stacklok.io/authz".into(), "inline".into());
    let data = json!({ "data": { "authz.json": canonical::to_string(&document) } });
    Some(Child::new(me, ChildKind::ConfigMap, &names::inline_authz(me.name()), json!(labels), json!({}), data))
}

/// The Service in front of a proxy.
fn service(context: &ProxyContext<'_>, dropped: &mut DroppedOverrides) -> Child {
    let ProxyContext { me, kind, spec, .. } = context;
    let (labels, port) = (workload_labels(me), spec.proxy_port);
    let affinity = match spec.session_affinity {
        SessionAffinity::ClientIP => "ClientIP",
        SessionAffinity::None => "None",
    };
    let body = json!({ "spec": {
        "selector": labels,
        "sessionAffinity": affinity,
        "ports": [{ "name": "http", "port": port, "targetPort": port, "protocol": "TCP" }],
    }});
    let overrides = spec.resource_overrides.and_then(|overrides| overrides.proxy_service.as_ref());
    let (labels, annotations) = with_overrides(&labels, overrides);
    let name = (kind.service)(me.name());
    finish(me, ChildKind::Service, &name, (labels, annotations), body, (PROXY_SERVICE, overrides), dropped)
}

fn deployment(
    context: &ProxyContext<'_>,
    plan: &ProxyPlan,
    template: Stamped,
    consumed: Option<String>,
    dropped: &mut DroppedOverrides,
) -> Child {
    let me = context.me;
    let labels = workload_labels(me);
    let mut body = json!({ "selector": { "matchLabels": labels }, "template": template.into_value() });
    if let (Some(replicas), Some(body)) = (plan.pod.replicas, body.as_object_mut()) {
        body.insert("replicas".into(), json!(replicas));
    }
    let overrides = context.spec.deployment_overrides();
    let overrides =
        overrides.map(|one| MetadataOverrides { labels: one.labels.clone(), annotations: one.annotations.clone() });
    let (labels, mut annotations) = with_overrides(&labels, overrides.as_ref());
    annotations.extend(consumed.map(|digest| (CONSUMED.to_owned(), json!(digest))));
    let template = plan.pod.template.as_ref();
    annotations.extend(template.map(|template| (TEMPLATE_HASH.to_owned(), json!(canonical::value_hash(template)))));
    let (metadata, body) = ((labels, annotations), json!({ "spec": body }));
    let overrides = (PROXY_DEPLOYMENT, overrides.as_ref());
    finish(me, ChildKind::Deployment, me.name(), metadata, body, overrides, dropped)
}

/// Finishes an object with labels and annotations of the user, and notes which of those gave way.
fn finish(
    me: &Resource,
    kind: ChildKind,
    name: &str,
    (labels, annotations): (Map<String, Value>, Map<String, Value>),
    body: Value,
    (field, overrides): (&str, Option<&MetadataOverrides>),
    dropped: &mut DroppedOverrides,
) -> Child {
    let child = Child::new(me, kind, name, Value::Object(labels), Value::Object(annotations), body);
    dropped.compare(field, overrides, child.metadata());
    dropped.add_reserved(field, overrides);
    child
}

/// Labels and annotations of an object: the user's, and ours, which win where the key is the same.
fn with_overrides(
    own: &BTreeMap<String, String>,
    overrides: Option<&MetadataOverrides>,
) -> (Map<String, Value>, Map<String, Value>) {
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    if let Some(overrides) = overrides {
        labels.extend(overrides.labels.iter().map(|(name, value)| (name.clone(), json!(value))));
        annotations.extend(allowed_annotations(overrides).map(|(name, value)| (name.clone(), json!(value))));
    }
    labels.extend(own.iter().map(|(name, value)| (name.clone(), json!(value))));
    (labels, annotations)
}
