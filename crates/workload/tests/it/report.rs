//! What a proxy reports of its server, on a real API server.

use anyhow::Result;

use crate::support::{Place, server};

const ANNOTATION: &str = "toolhive.stacklok.dev/upstream-degraded";

#[tokio::test]
async fn a_degraded_server_is_reported_on_its_stateful_set_and_the_report_goes_when_it_recovers() -> Result<()> {
    let place = Place::new("report").await?;
    let cluster = place.cluster(server("s", 1));
    // There is nothing to report on yet.
    cluster.report("proxy-1", Some("nothing is there")).await?;
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

    cluster.report("proxy-1", Some("connection refused")).await?;
    let (report, version, unchanged) = seen().await?;
    assert_eq!(report.as_deref(), Some(r#"{"message":"connection refused","pod":"proxy-1"}"#));
    assert_eq!(unchanged, generation, "a report rolls no pod");
    cluster.report("proxy-1", Some("connection refused")).await?;
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
