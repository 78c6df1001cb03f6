//! Names and keys of the Secrets and ConfigMaps that a resource refers to, whichever its kind.
//!
//! No object has a name that the API server would refuse, so such a reference leads nowhere, and what is left of it is what a name does
//! in a path: `?watch=true` in place of a Secret would open a watch, and `../x` in place of a key would keep a Deployment from being
//! accepted. All checks of a kind begin here.

use std::collections::BTreeSet;

use skep_api::reference::Target;
use skep_api::resource::Resource;
use skep_bounds::CONTENT_REFERENCES;

use super::Problems;
use crate::inputs::count_contents;
use crate::text::{Name, check_key};

/// What is wrong with the references of a resource to Secrets and ConfigMaps.
pub(crate) fn problems(me: &Resource) -> Problems {
    let mut problems = Problems::default();
    let count = count_contents(me);
    if count > CONTENT_REFERENCES {
        let advice = format_args!("refer to at most {CONTENT_REFERENCES}, with several keys in each");
        problems.add("spec", format_args!("it refers to {count} Secrets and ConfigMaps; {advice}"));
        return problems;
    }
    let mut checked = BTreeSet::new();
    for reference in me.references() {
        let (Target::Secret { key } | Target::ConfigMap { key } | Target::Document { key }) = &reference.to else {
            continue;
        };
        if !checked.insert((reference.name.clone(), key.clone())) {
            continue;
        }
        problems.check(&reference.field, Name::subdomain(&reference.name).map(drop));
        // An empty key stands for the whole object.
        if !key.is_empty() {
            problems.check(&reference.field, check_key(key));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use skep_api::resource::KindName;

    use super::*;
    use crate::plan::{Verdict, plan};
    use crate::validate::testing::{Surroundings, resource};

    /// A spec of each kind that refers to Secrets or ConfigMaps, with this name and key in it.
    fn specs(name: &str, key: &str) -> Vec<(KindName, Value)> {
        let secret = json!({ "name": name, "key": key });
        let bundle = json!({ "configMapRef": { "name": name, "key": key } });
        let headers = json!({ "addHeadersFromSecret": [{ "headerName": "X-A", "valueSecretRef": secret }] });
        let remote = "https://example.com/mcp";
        vec![
            (KindName::EmbeddingServer, json!({ "model": "m", "image": "i", "hfTokenSecretRef": secret })),
            (KindName::MCPRegistry, json!({ "configYAML": "sources: []\n", "pgpassSecretRef": secret })),
            (KindName::MCPServer, json!({ "image": "i", "secrets": [secret] })),
            (
                KindName::MCPServer,
                json!({ "image": "i", "permissionProfile": { "type": "configmap", "name": name, "key": key } }),
            ),
            (
                KindName::MCPServer,
                json!({ "image": "i", "authzConfig": { "type": "configMap", "configMap": { "name": name, "key": key } } }),
            ),
            (KindName::MCPRemoteProxy, json!({ "remoteUrl": remote, "headerForward": headers })),
            (
                KindName::MCPServerEntry,
                json!({ "remoteUrl": remote, "transport": "streamable-http", "groupRef": { "name": "g" }, "headerForward": headers }),
            ),
            (
                KindName::MCPServerEntry,
                json!({ "remoteUrl": remote, "transport": "streamable-http", "groupRef": { "name": "g" }, "caBundleRef": bundle }),
            ),
            (
                KindName::VirtualMCPServer,
                json!({
                    "incomingAuth": { "type": "anonymous" },
                    "groupRef": { "name": "g" },
                    "sessionStorage": { "provider": "redis", "address": "r:6379", "passwordRef": secret }
                }),
            ),
            (
                KindName::MCPOIDCConfig,
                json!({ "type": "inline", "inline": { "issuer": "https://i.example", "clientSecretRef": secret, "caBundleRef": bundle } }),
            ),
            (
                KindName::MCPExternalAuthConfig,
                json!({ "type": "bearerToken", "bearerToken": { "tokenSecretRef": secret } }),
            ),
            (
                KindName::MCPTelemetryConfig,
                json!({ "openTelemetry": {
                    "enabled": true,
                    "endpoint": "https://o.example",
                    "sensitiveHeaders": [{ "name": "x-a", "secretKeyRef": secret }]
                } }),
            ),
            (
                KindName::MCPWebhookConfig,
                json!({ "validating": [{ "name": "v", "url": "https://w.example", "hmacSecretRef": secret }] }),
            ),
        ]
    }

    #[test]
    fn a_resource_refers_to_a_bounded_number_of_secrets() {
        let plan_of = |count: usize| {
            let secrets: Vec<Value> = (0..count)
                .map(
                    |number| json!({ "name": format!("s{number}"), "key": "k", "targetEnvName": format!("E{number}") }),
                )
                .collect();
            let me =
                resource(KindName::MCPServer, "s", &json!({ "image": "registry.example/a:1", "secrets": secrets }));
            plan(&me, &Surroundings::default().world()).verdict
        };
        assert_eq!(plan_of(256), Verdict::Apply);
        let Verdict::Refuse(why) = plan_of(257) else { panic!("it was accepted") };
        assert_eq!(
            why,
            "spec: it refers to 257 Secrets and ConfigMaps; refer to at most 256, with several keys in each"
        );
    }

    /// What is said of a resource of which something is wrong.
    fn reported(kind: KindName, spec: &Value) -> Vec<String> {
        let surroundings = Surroundings::default().with(resource(KindName::MCPGroup, "g", &json!({})));
        let plan = plan(&resource(kind, "x", spec), &surroundings.world());
        let verdict = match &plan.verdict {
            Verdict::Refuse(why) => Some(why.clone()),
            Verdict::Apply | Verdict::Wait(_) => None,
        };
        let conditions = plan.status.conditions().iter().filter(|one| one.is_false()).map(|one| one.message.clone());
        conditions.chain(verdict).collect()
    }

    #[test]
    fn a_name_that_no_object_has_is_refused_in_every_kind() {
        for name in ["?", "?watch=true", "a b", "../x", "a/b", "%2e", "A"] {
            for (kind, spec) in specs(name, "key") {
                let reported = reported(kind, &spec);
                let expected = format!("`{name}` is not a valid object name");
                assert!(reported.iter().any(|one| one.contains(&expected)), "{kind}: {reported:?}");
            }
        }
    }

    #[test]
    fn a_key_that_no_object_has_is_refused_in_every_kind() {
        for key in ["../x", "..", "a b", "a/b", "é"] {
            for (kind, spec) in specs("name", key) {
                let reported = reported(kind, &spec);
                let expected = format!("`{key}` is not a valid key of a Secret or ConfigMap");
                assert!(reported.iter().any(|one| one.contains(&expected)), "{kind}: {reported:?}");
            }
        }
    }

    #[test]
    fn every_kind_that_refers_to_secrets_is_tested() {
        let tested: BTreeSet<_> = specs("name", "key").into_iter().map(|(kind, _)| kind).collect();
        // The others refer to objects of Skep's kinds at most.
        let others = [
            KindName::MCPAuthzConfig,
            KindName::MCPGroup,
            KindName::MCPToolConfig,
            KindName::VirtualMCPCompositeToolDefinition,
        ];
        assert_eq!(tested.len() + others.len(), KindName::ALL.len());
        for (kind, spec) in specs("name", "key") {
            assert!(problems(&resource(kind, "x", &spec)).list().is_empty(), "{kind}");
            assert!(!problems(&resource(kind, "x", &specs_of(kind, "?"))).list().is_empty(), "{kind}");
        }
    }

    fn specs_of(kind: KindName, name: &str) -> Value {
        specs(name, "key").into_iter().find(|(one, _)| *one == kind).unwrap().1
    }
}
