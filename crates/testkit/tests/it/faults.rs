//! Breaking a control plane of one's own.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;
use skep_testkit::{ControlPlane, Seen, eventually};

fn map(name: &str) -> Result<ConfigMap> {
    Ok(serde_json::from_value(json!({ "metadata": { "name": name } }))?)
}

#[tokio::test]
async fn an_api_server_comes_back_with_its_data_and_a_paused_etcd_resumes() -> Result<()> {
    let mut plane = ControlPlane::start().await?;
    let mut config = plane.config();
    config.default_retry = false;
    let maps = Api::<ConfigMap>::namespaced(kube::Client::try_from(config)?, "default");
    maps.create(&PostParams::default(), &map("kept")?).await?;

    plane.stop_apiserver()?;
    assert!(maps.get("kept").await.is_err(), "a killed API server answered");
    plane.start_apiserver().await?;
    maps.get("kept").await?;

    plane.pause_etcd()?;
    let hung = tokio::time::timeout(Duration::from_secs(1), maps.create(&PostParams::default(), &map("late")?)).await;
    assert!(hung.is_err(), "a write went through without etcd: {hung:?}");
    plane.resume_etcd()?;
    eventually("a write to go through again", Duration::from_secs(30), || async {
        Ok(match maps.create(&PostParams::default(), &map("after")?).await {
            Ok(_) => Seen::Yes(()),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn the_audit_log_tells_writers_apart_by_user_agent() -> Result<()> {
    let plane = ControlPlane::builder().audit(true).start().await?;
    let mut config = plane.config();
    config.headers.push(("user-agent".parse()?, "skep-test-writer".parse()?));
    let maps = Api::<ConfigMap>::namespaced(kube::Client::try_from(config)?, "default");
    maps.create(&PostParams::default(), &map("audited")?).await?;

    let writes = eventually("the write to be logged", Duration::from_secs(10), || async {
        let mut events = plane.audit_events()?;
        events.retain(|event| event["userAgent"] == "skep-test-writer");
        Ok(if events.is_empty() { Seen::NotYet("no event".to_owned()) } else { Seen::Yes(events) })
    })
    .await?;
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0]["verb"], "create");
    assert_eq!(writes[0]["objectRef"]["name"], "audited");
    assert!(writes[0].get("requestObject").is_none(), "bodies are not logged");
    Ok(())
}
