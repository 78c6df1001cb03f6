//! The lease on a real API server: one is the leader, the other waits, and a leader that may have lost it says so.

use std::time::Duration;

use anyhow::Result;
use http::{Method, Request};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use kube::client::Body;
use serde_json::json;
use skep_operator::lease::Election;
use skep_testkit::ControlPlane;

use crate::between::{Verdict, between};

#[tokio::test]
async fn one_leads_the_other_waits_and_takes_over_when_the_lease_is_given_back() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("lease").await?;
    let election =
        |who: &str| -> Result<Election> { Ok(Election::new(plane.client()?, &namespace, "l", who.to_owned())) };
    let first = election("first")?;
    let _held = first.clone().acquire().await;
    let second = tokio::spawn(election("second")?.acquire());
    let leases: Api<Lease> = Api::namespaced(plane.client()?, &namespace);
    let holder = || async { Ok::<_, anyhow::Error>(leases.get("l").await?.spec.and_then(|spec| spec.holder_identity)) };
    assert_eq!(holder().await?.as_deref(), Some("first"));
    assert!(!second.is_finished());
    // Only its holder can release it.
    election("stranger")?.release().await?;
    assert_eq!(holder().await?.as_deref(), Some("first"));
    first.release().await?;
    let won = tokio::time::timeout(Duration::from_secs(20), second).await?;
    assert!(won.is_ok());
    assert_eq!(holder().await?.as_deref(), Some("second"));
    Ok(())
}

#[tokio::test]
async fn a_leader_whose_lease_another_candidate_holds_gives_up() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("lease").await?;
    let leadership = Election::new(plane.client()?, &namespace, "l", "first".to_owned()).acquire().await;
    let lost = tokio::spawn(leadership.lost());
    let leases: Api<Lease> = Api::namespaced(plane.client()?, &namespace);
    let thief = Patch::Merge(json!({ "spec": { "holderIdentity": "thief" } }));
    leases.patch("l", &PatchParams::default(), &thief).await?;
    let why = tokio::time::timeout(Duration::from_secs(20), lost).await??;
    assert!(why.contains("another process"), "{why}");
    assert_eq!(leases.get("l").await?.spec.and_then(|spec| spec.holder_identity).as_deref(), Some("thief"));
    Ok(())
}

#[tokio::test]
async fn a_leader_that_cannot_renew_gives_up_before_another_candidate_may_take_over() -> Result<()> {
    let mut plane = ControlPlane::start().await?;
    let namespace = plane.namespace("lease").await?;
    let leadership = Election::new(plane.client()?, &namespace, "l", "first".to_owned()).acquire().await;
    let lost = tokio::spawn(leadership.lost());
    plane.stop_apiserver()?;
    let started = std::time::Instant::now();
    let why = tokio::time::timeout(Duration::from_secs(30), lost).await??;
    assert!(why.contains("could not be renewed"), "{why}");
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "the lease lasts 15 s; it gave up after {:?}",
        started.elapsed()
    );
    plane.stop();
    Ok(())
}

/// An API server whose reads are quick and whose writes never end.
#[tokio::test]
async fn a_leader_whose_renewal_hangs_gives_up_as_well() -> Result<()> {
    let plane = crate::running::plane().await?;
    let namespace = plane.namespace("lease").await?;
    let hanging = between(plane.client()?, |request: Request<Body>| async move {
        if request.method() == Method::PATCH {
            std::future::pending::<()>().await;
        }
        Verdict::Pass(request)
    });
    let leadership = Election::new(hanging, &namespace, "l", "first".to_owned()).acquire().await;
    let why = tokio::time::timeout(Duration::from_secs(30), leadership.lost()).await?;
    assert!(why.contains("could not be renewed"), "{why}");
    Ok(())
}

/// The first lists can take longer than a lease lasts.
#[tokio::test]
async fn a_leader_renews_its_lease_before_it_has_seen_all_objects() -> Result<()> {
    let plane = crate::running::plane().await?;
    let namespace = plane.namespace("lease").await?;
    let blind = between(plane.client()?, |request: Request<Body>| async move {
        if request.uri().path().ends_with("/secrets") {
            std::future::pending::<()>().await;
        }
        Verdict::Pass(request)
    });
    let operator = crate::running::start_leading_as(blind, plane, namespace.clone())?;
    let leases: Api<Lease> = Api::namespaced(plane.client()?, &namespace);
    let renewed = || async {
        let lease = leases.get_opt("toolhive-operator-leader-election").await?;
        Ok::<_, anyhow::Error>(lease.and_then(|lease| lease.spec).and_then(|spec| spec.renew_time))
    };
    let mut seen = None;
    for _ in 0..3 {
        seen = skep_testkit::eventually("the lease is renewed", crate::running::PATIENCE, || async {
            Ok(match renewed().await? {
                Some(time) if seen.as_ref() != Some(&time) => skep_testkit::Seen::Yes(Some(time)),
                other => skep_testkit::Seen::NotYet(format!("{other:?}")),
            })
        })
        .await?;
    }
    operator.stop().await
}

#[tokio::test]
async fn an_operator_that_is_stopped_gives_its_lease_back() -> Result<()> {
    let plane = crate::running::plane().await?;
    let namespace = plane.namespace("lease").await?;
    let operator = crate::running::start_leading(plane, namespace.clone())?;
    let leases: Api<Lease> = Api::namespaced(plane.client()?, &namespace);
    let holder = || async {
        let lease = leases.get_opt("toolhive-operator-leader-election").await?;
        Ok::<_, anyhow::Error>(lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity))
    };
    skep_testkit::eventually("the operator leads", crate::running::PATIENCE, || async {
        Ok(match holder().await? {
            Some(name) if name == "test" => skep_testkit::Seen::Yes(()),
            other => skep_testkit::Seen::NotYet(format!("{other:?}")),
        })
    })
    .await?;
    operator.stop().await?;
    assert_eq!(holder().await?.as_deref(), Some(""));
    Ok(())
}
