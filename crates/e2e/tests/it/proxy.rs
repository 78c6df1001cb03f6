//! Servers on real pods, behind our proxy, made by our operator: what happens when something goes wrong.

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::{fixture_image, next_image};
use crate::home::{Caller, Home, get, http, stdio};

#[tokio::test]
async fn servers_on_stdio_and_http_become_ready_answer_and_survive_the_loss_of_their_pods() -> Result<()> {
    let fixture = fixture_image()?;
    let home = Home::new("proxy").await?;
    home.create("lines", stdio(&fixture)).await?;
    home.create("web", http(&fixture)).await?;
    let mut callers = Vec::new();
    for name in ["lines", "web"] {
        home.ready(name).await?;
        let address = home.address(name).await?;
        let caller = home.caller(&address).await?;
        ensure!(caller.call("who", "{}")?.starts_with(&format!("{name}-0")), "{name}");
        callers.push((name, caller));
    }
    for (name, caller) in &callers {
        // Its pod goes in the middle of a call: that call ends with a clear answer, and later ones are answered again.
        let slow = {
            let (address, session) = (caller.address.clone(), caller.session.clone());
            tokio::task::spawn_blocking(move || Caller { address, session }.call("sleep", r#"{"seconds":"60"}"#))
        };
        home.cluster
            .until("the call is under way", || async {
                Ok(home.cluster.logs(&format!("{name}-0"), "mcp").await?.contains("a call sleeps"))
            })
            .await?;
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        home.api::<Pod>().delete(&format!("{name}-0"), &now).await?;
        for (other, caller) in callers.iter().filter(|(other, _)| other != name) {
            ensure!(caller.call("who", "{}")?.starts_with(&format!("{other}-0")), "{other} suffers with {name}");
        }
        told(&slow.await?.err().with_context(|| format!("{name}: a call was answered by a pod that is gone"))?)?;
        home.cluster
            .until(&format!("{name} answers the same session again"), || {
                let answered = caller.call("who", "{}").is_ok();
                async move { Ok(answered) }
            })
            .await?;
    }
    // A server that dies in the middle of a line.
    let address = home.address("lines").await?;
    let caller = home.caller(&address).await?;
    told(&caller.call("die", "{}").err().context("a call was answered by a server that died")?)?;
    home.cluster
        .until("the server that died answers again", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    // Nobody was started again for any of it.
    home.cluster.no_restarts("app=mcpserver").await?;

    // Down to nothing and back, without anybody falling over.
    for (replicas, is_answered) in [(0, false), (1, true)] {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        home.api::<StatefulSet>().patch("web", &PatchParams::default(), &patch).await?;
        let address = home.address("web").await?;
        home.cluster
            .until(&format!("web with {replicas} pods"), || {
                let answered = Caller::greet(&address).is_ok();
                async move { Ok(answered == is_answered) }
            })
            .await?;
    }
    // The same on stdio. A handshake is answered by the proxy itself there, so its health and a call say how it is.
    let scale = async |replicas: u32| {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        home.api::<StatefulSet>().patch("lines", &PatchParams::default(), &patch).await
    };
    scale(0).await?;
    home.cluster
        .until("lines is told to be scaled to zero", || {
            let page = get(&address, "/health");
            async { Ok(page?.1.contains("scaled to zero")) }
        })
        .await?;
    scale(1).await?;
    home.cluster
        .until("lines answers the same session again", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    // A StatefulSet that somebody deletes comes back.
    home.api::<StatefulSet>().delete("lines", &DeleteParams::background()).await?;
    home.cluster
        .until("lines is made again and answers", || {
            let answered = caller.call("who", "{}").is_ok();
            async move { Ok(answered) }
        })
        .await?;
    home.cluster.no_restarts("app=mcpserver").await?;
    home.cluster.remove().await
}

/// The call ended with a clear answer: at once, and not by a time limit or a broken connection.
fn told(error: &anyhow::Error) -> Result<()> {
    ensure!(error.to_string().starts_with("HTTP/1.1 502"), "the caller is not told what happened: {error:#}");
    Ok(())
}

#[tokio::test]
async fn an_old_proxy_that_starts_again_does_not_take_the_server_back() -> Result<()> {
    let (fixture, next) = (fixture_image()?, next_image()?);
    let home = Home::new("gate").await?;
    home.create("s", http(&fixture)).await?;
    home.ready("s").await?;
    // From now on a new proxy pod is not taken for available, so old and new ones stand beside each other.
    let slow = json!({ "spec": { "minReadySeconds": 3000, "progressDeadlineSeconds": 6000 } });
    home.api::<Deployment>().patch("s", &PatchParams::default(), &Patch::Merge(slow)).await?;
    let old = home.pods("app=mcpserver").await?;
    ensure!(old.len() == 1, "there are {} proxies", old.len());

    let bump = Patch::Merge(json!({ "spec": { "image": next } }));
    home.servers().patch("s", &PatchParams::default(), &bump).await?;
    let image = |set: &StatefulSet| {
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        spec.and_then(|spec| spec.containers.first()?.image.clone())
    };
    let sets = home.api::<StatefulSet>();
    home.cluster
        .until("the new proxy brings the new image", || async {
            Ok(image(&sets.get("s").await?) == Some(next.clone()))
        })
        .await?;
    let pods = home.pods("app=mcpserver").await?;
    ensure!(pods.len() == 2, "old and new proxy should stand beside each other, there are {}", pods.len());

    // The old one starts again, from the old template, with the new RunConfig mounted.
    let gone = old.first().and_then(|pod| pod.metadata.name.clone()).context("a pod without a name")?;
    home.api::<Pod>().delete(&gone, &DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() }).await?;
    let generation = "toolhive.stacklok.dev/mcpserver-generation";
    let is_old = |pod: &Pod| {
        pod.metadata.annotations.as_ref().and_then(|all| all.get(generation)).is_some_and(|text| text == "1")
    };
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let mut again = None;
    home.cluster
        .until("the old proxy is there again and ready", || async {
            let pods = home.pods("app=mcpserver").await?;
            Ok(pods.iter().any(|pod| pod.metadata.name.as_deref() != Some(&gone) && is_old(pod) && is_ready(pod)))
        })
        .await?;
    for pod in home.pods("app=mcpserver").await? {
        if is_old(&pod) && is_ready(&pod) && pod.metadata.name.as_deref() != Some(&gone) {
            again = pod.status.and_then(|status| status.pod_ip);
        }
    }
    // It serves, through the newer server.
    let address = format!("{}:8080", again.context("the old proxy has no address")?);
    let caller = home.caller(&address).await?;
    ensure!(caller.call("who", "{}")?.starts_with("s-0"));
    // The server ended on the new image and was never taken back: one revision for each image, no more.
    ensure!(image(&sets.get("s").await?) == Some(next.clone()), "the old proxy took the server back");
    let revisions = home.api::<ControllerRevision>().list(&ListParams::default().labels("app=s")).await?;
    let mut numbers: Vec<i64> = revisions.items.iter().map(|revision| revision.revision).collect();
    numbers.sort_unstable();
    if numbers != [1, 2] {
        bail!("the server's revisions are {numbers:?}");
    }
    home.cluster.remove().await
}

#[tokio::test]
async fn a_slow_call_keeps_nobody_waiting_and_is_finished_by_a_proxy_that_is_told_to_go() -> Result<()> {
    let home = Home::new("slow").await?;
    home.create("s", stdio(&fixture_image()?)).await?;
    home.ready("s").await?;
    let address = home.address("s").await?;
    let caller = home.caller(&address).await?;
    let slow = {
        let (address, session) = (caller.address.clone(), caller.session.clone());
        tokio::task::spawn_blocking(move || Caller { address, session }.call("sleep", r#"{"seconds":"10"}"#))
    };
    for _ in 0..20 {
        caller.call("who", "{}")?;
    }
    ensure!(!slow.is_finished(), "twenty calls took longer than one of ten seconds");
    // Its proxy is told to go: the call is finished all the same.
    let proxies = home.pods("app=mcpserver").await?;
    let proxy = proxies.first().and_then(|pod| pod.metadata.name.clone()).context("no proxy")?;
    home.api::<Pod>().delete(&proxy, &DeleteParams::default()).await?;
    ensure!(slow.await??.starts_with("s-0"), "the call was not finished");
    // Another one takes its place; the server behind was not touched.
    let again = home.caller(&address).await?;
    ensure!(again.call("who", "{}")?.starts_with("s-0"));
    let pod = home.api::<Pod>().get("s-0").await?;
    let restarts: i32 = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
        .map(|one| one.restart_count)
        .sum();
    ensure!(restarts == 0, "the server was started again {restarts} times");
    home.cluster.remove().await
}
