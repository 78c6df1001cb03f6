//! Webhooks of a virtual server: in its configuration by reference alone, in force or not applied.

use super::*;

fn hooks() -> Value {
    let secret = |key: &str| json!({ "name": "keys", "key": key });
    let tls = json!({ "caSecretRef": secret("ca"), "clientCertSecretRef": secret("crt"), "clientKeySecretRef": secret("key") });
    json!({
        "mutating": [{ "name": "change", "url": "https://h.example/m", "failurePolicy": "ignore" }],
        "validating": [{ "name": "review", "url": "https://h.example/v", "timeout": "2s", "hmacSecretRef": secret("hmac"), "tlsConfig": tls }],
    })
}

fn hooked() -> Value {
    with(&json!({ "webhookConfigRef": { "name": "hooks" } }))
}

fn with_hooks(hooks: &Value) -> Surroundings {
    team().with(resource(KindName::MCPWebhookConfig, "hooks", hooks))
}

#[test]
fn webhooks_stand_in_the_configuration_with_their_secrets_as_files() {
    let plan = planned(&hooked(), &with_hooks(&hooks()));
    assert_eq!(plan.verdict, Verdict::Apply);
    assert_eq!(reported(&plan, "WebhookConfigValidated").1, "WebhookConfigValid");
    assert!(plan.status.field("webhookConfigHash").is_some_and(Value::is_string));
    let mut written = config(&plan)["webhooks"].clone();
    let place = "/etc/toolhive/webhooks/webhook_validating_review_";
    let validating = &mut written["validating"][0];
    let mut take = |pointer: &str| validating.pointer_mut(pointer).unwrap().take().as_str().unwrap().to_owned();
    let paths = ["/tlsConfig/caBundlePath", "/tlsConfig/clientCertPath", "/tlsConfig/clientKeyPath", "/hmacSecretRef"];
    let paths = paths.map(&mut take);
    for (path, file) in paths.iter().zip(["ca.crt", "tls.crt", "tls.key", "hmac"]) {
        assert!(path.starts_with(place) && path.ends_with(&format!("/{file}")), "{path}");
    }
    let expected = json!({
        "mutating": [{ "name": "change", "url": "https://h.example/m", "failurePolicy": "ignore" }],
        "validating": [{
            "name": "review", "url": "https://h.example/v", "timeout": "2s", "failurePolicy": "fail", "hmacSecretRef": null,
            "tlsConfig": { "caBundlePath": null, "clientCertPath": null, "clientKeyPath": null },
        }],
    });
    assert_eq!(written, expected);
    let container = container(&plan);
    let mounts = container["volumeMounts"].as_array().unwrap();
    for path in paths {
        let directory = path.rsplit_once('/').unwrap().0;
        let mount = mounts.iter().find(|mount| mount["mountPath"] == directory).unwrap();
        assert_eq!((&mount["readOnly"], mount.get("subPath")), (&json!(true), None), "{mount}");
    }
    let without = planned(&spec(), &with_hooks(&hooks()));
    assert_eq!(
        (without.status.field("webhookConfigHash"), config(&without).get("webhooks")),
        (Some(&Value::Null), None)
    );
}

#[test]
fn webhooks_that_are_missing_or_wrong_keep_the_server_from_running() {
    let plan = planned(&hooked(), &team());
    assert_fails(&plan, true, "Failed", "WebhookConfigValidated", "WebhookConfigNotFound");
    let plan = planned(&hooked(), &with_hooks(&json!({ "validating": [{ "name": "review", "url": "nowhere" }] })));
    assert_fails(&plan, false, "Failed", "WebhookConfigValidated", "WebhookConfigInvalid");
}

#[test]
fn a_change_of_the_webhooks_rolls_the_pods() {
    let checksum = |hooks: &Value| {
        let deployment = child(&planned(&hooked(), &with_hooks(hooks)), ChildKind::Deployment);
        deployment["spec"]["template"]["metadata"]["annotations"][crate::pod::CHECKSUM].clone()
    };
    let mut other = hooks();
    other["validating"][0]["timeout"] = json!("3s");
    assert_ne!(checksum(&hooks()), checksum(&other));
}

#[test]
fn webhooks_in_the_configuration_itself_are_refused_as_they_would_be_replaced() {
    let own = json!({ "validating": [{ "name": "review", "url": "https://h.example" }] });
    let plan = planned(&with(&json!({ "config": { "webhooks": own } })), &team());
    assert_fails(&plan, false, "Failed", "Valid", "ValidationFailed");
    let why = reported(&plan, "Valid").2;
    assert_eq!(why, "spec.config.webhooks: name an MCPWebhookConfig in spec.webhookConfigRef instead");
}

#[test]
fn webhooks_that_the_image_does_not_call_are_refused() {
    let mut surroundings = with_hooks(&hooks());
    surroundings.settings.unsupported_by_vmcp = Some([Feature::Webhooks].into());
    let plan = planned(&hooked(), &surroundings);
    let (holds, reason, message) = reported(&plan, "Ready");
    assert_eq!((holds, reason.as_str(), plan.children.len()), (false, "NotSupported", 0), "{message}");
    assert!(message.contains("spec.webhookConfigRef"), "{message}");
}
