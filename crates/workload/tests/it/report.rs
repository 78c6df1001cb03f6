//! A proxy's reports about its server, on a real API server.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use skep_workload::report::UpstreamState::{Degraded, Starting};
use skep_workload::report::{Problem, Reported};

use crate::support::{Place, server};

const ANNOTATION: &str = "toolhive.stacklok.dev/upstream-state";

#[tokio::test]
async fn a_server_that_cannot_be_used_is_reported_on_its_stateful_set_and_the_report_goes_when_it_recovers()
-> Result<()> {
    let place = Place::new("report").await?;
    let cluster = place.cluster(server("s", 1));
    let problem = |state, message: &str| Problem { state, answered: false, message: message.to_owned() };
    // There is no object to annotate yet, and the caller learns that it has to repeat it.
    let early = cluster.report("proxy-1", Some(&problem(Starting, "nothing is there"))).await?;
    assert_eq!(early, Reported::NoObject);
    cluster.apply().await?;
    let seen = || async {
        let metadata = place.sets().get("s").await?.metadata;
        let report = metadata.annotations.and_then(|all| all.get(ANNOTATION).cloned());
        anyhow::Ok((report, metadata.resource_version, metadata.generation))
    };
    let (report, first, generation) = seen().await?;
    assert_eq!(report, None);
    cluster.report("proxy-1", None).await?;
    assert_eq!(seen().await?, (None, first, generation), "a server that can be used costs no write");

    for (state, word) in [(Starting, "starting"), (Degraded, "degraded")] {
        assert_eq!(cluster.report("proxy-1", Some(&problem(state, "connection refused"))).await?, Reported::Written);
        let report: Value = serde_json::from_str(&seen().await?.0.unwrap_or_default())?;
        let expected = json!({ "message": "connection refused", "pod": "proxy-1", "state": word, "answered": false });
        assert_eq!(report, expected);
    }
    let refused = problem(Degraded, "connection refused");
    let (report, version, unchanged) = seen().await?;
    assert_eq!(unchanged, generation, "a report rolls no pod");
    // The API server drops writes that change nothing: the requests say more than the version.
    assert_eq!(cluster.report("proxy-1", Some(&refused)).await?, Reported::Unchanged);
    assert_eq!(seen().await?.1, version, "the same report is not written again");
    // Only the proxy that reported it removes it: another one may reach the server all the while. Applying keeps it.
    cluster.apply().await?;
    assert_eq!(seen().await?.0, report);
    cluster.report("proxy-2", None).await?;
    assert_eq!(seen().await?.0, report);
    cluster.report("proxy-1", None).await?;
    assert_eq!(seen().await?.0, None);
    Ok(())
}

#[tokio::test]
async fn a_server_that_cannot_be_made_is_reported_on_the_service_of_its_proxy_until_there_is_a_stateful_set()
-> Result<()> {
    let place = Place::new("denied").await?;
    let cluster = place.cluster(server("s", 1));
    let services: Api<Service> = Api::namespaced(place.client.clone(), &place.namespace);
    let service = json!({ "metadata": { "name": "mcp-s-proxy" }, "spec": { "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    let is_reported = || async {
        let of = |annotations: Option<std::collections::BTreeMap<String, String>>| {
            annotations.is_some_and(|all| all.contains_key(ANNOTATION))
        };
        let set = place.sets().get_opt("s").await?.is_some_and(|set| of(set.metadata.annotations));
        anyhow::Ok((of(services.get("mcp-s-proxy").await?.metadata.annotations), set))
    };
    let denied = Problem { state: Degraded, answered: false, message: "denied by a policy".to_owned() };
    assert_eq!(cluster.report("proxy-1", None).await?, Reported::Unchanged);
    assert_eq!(is_reported().await?, (false, false));
    assert_eq!(cluster.report("proxy-1", Some(&denied)).await?, Reported::Written);
    assert_eq!(cluster.report("proxy-1", Some(&denied)).await?, Reported::Unchanged);
    assert_eq!(is_reported().await?, (true, false));
    cluster.apply().await?;
    assert_eq!(cluster.report("proxy-1", Some(&denied)).await?, Reported::Written);
    assert_eq!(is_reported().await?, (false, true));
    cluster.report("proxy-1", None).await?;
    assert_eq!(is_reported().await?, (false, false));
    Ok(())
}

#[tokio::test]
async fn proxies_that_see_the_same_trouble_do_not_overwrite_each_other_and_none_is_forgotten() -> Result<()> {
    let place = Place::new("reports").await?;
    let cluster = place.cluster(server("s", 1));
    cluster.apply().await?;
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
    for name in ["proxy-1", "proxy-2"] {
        let pod = json!({
            "metadata": { "name": name },
            "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "toolhive", "image": "a" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    let refused = Problem { state: Degraded, answered: true, message: "connection refused".to_owned() };
    let reporter = || async {
        let annotations = place.sets().get("s").await?.metadata.annotations.unwrap_or_default();
        let report: Value = serde_json::from_str(annotations.get(ANNOTATION).map_or("null", String::as_str))?;
        anyhow::Ok(report["pod"].as_str().map(str::to_owned))
    };
    assert_eq!(cluster.report("proxy-1", Some(&refused)).await?, Reported::Written);
    assert_eq!(cluster.report("proxy-2", Some(&refused)).await?, Reported::ByAnother);
    assert_eq!(reporter().await?.as_deref(), Some("proxy-1"));
    // The first one recovers, the second one does not.
    cluster.report("proxy-1", None).await?;
    assert_eq!(cluster.report("proxy-2", Some(&refused)).await?, Reported::Written);
    assert_eq!(reporter().await?.as_deref(), Some("proxy-2"));
    // The second one is evicted, and the first one has the same trouble again.
    assert_eq!(cluster.report("proxy-1", Some(&refused)).await?, Reported::ByAnother);
    let evicted = Patch::Merge(json!({ "status": { "phase": "Failed", "reason": "Evicted" } }));
    pods.patch_status("proxy-2", &PatchParams::default(), &evicted).await?;
    assert_eq!(cluster.report("proxy-1", Some(&refused)).await?, Reported::Written);
    // It is gone as well.
    cluster.report("proxy-1", None).await?;
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    pods.patch_status("proxy-2", &PatchParams::default(), &running).await?;
    assert_eq!(cluster.report("proxy-2", Some(&refused)).await?, Reported::Written);
    pods.delete("proxy-2", &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    assert_eq!(cluster.report("proxy-1", Some(&refused)).await?, Reported::Written);
    assert_eq!(reporter().await?.as_deref(), Some("proxy-1"));
    Ok(())
}
