//! What a proxy reports of its server, on a real API server.

use anyhow::Result;
use serde_json::{Value, json};

use skep_workload::report::Reported;
use skep_workload::report::UpstreamState::{Degraded, Starting};

use crate::support::{Place, server};

const ANNOTATION: &str = "toolhive.stacklok.dev/upstream-state";

#[tokio::test]
async fn a_server_that_cannot_be_used_is_reported_on_its_stateful_set_and_the_report_goes_when_it_recovers()
-> Result<()> {
    let place = Place::new("report").await?;
    let cluster = place.cluster(server("s", 1));
    // There is nothing to report on yet, and the caller learns that it has to repeat it.
    let early = cluster.report("proxy-1", Some((Starting, "nothing is there"))).await?;
    assert_eq!(early, Reported::NoStatefulSet);
    cluster.apply().await?;
    let seen = || async {
        let metadata = place.sets().get("s").await?.metadata;
        let report = metadata.annotations.and_then(|all| all.get(ANNOTATION).cloned());
        anyhow::Ok((report, metadata.resource_version, metadata.generation))
    };
    let (report, first, generation) = seen().await?;
    assert_eq!(report, None);
    cluster.report("proxy-1", None).await?;
    assert_eq!(seen().await?, (None, first, generation), "a server that is well costs no write");

    for (state, word) in [(Starting, "starting"), (Degraded, "degraded")] {
        assert_eq!(cluster.report("proxy-1", Some((state, "connection refused"))).await?, Reported::Written);
        let report: Value = serde_json::from_str(&seen().await?.0.unwrap_or_default())?;
        assert_eq!(report, json!({ "message": "connection refused", "pod": "proxy-1", "state": word }));
    }
    let (report, version, unchanged) = seen().await?;
    assert_eq!(unchanged, generation, "a report rolls no pod");
    cluster.report("proxy-1", Some((Degraded, "connection refused"))).await?;
    assert_eq!(seen().await?.1, version, "the same report is not written again");
    // Only the proxy that reported it takes it back: another one may reach the server all the while. Applying leaves it alone.
    cluster.apply().await?;
    assert_eq!(seen().await?.0, report);
    cluster.report("proxy-2", None).await?;
    assert_eq!(seen().await?.0, report);
    cluster.report("proxy-1", None).await?;
    assert_eq!(seen().await?.0, None);
    Ok(())
}
