//! What the chart makes of its values.

use serde_json::{Value, json};
use skep_operator::rbac::{self, Rule};
use skep_testkit::ControlPlane;

use crate::helm::{HOME, Objects, RELEASE, chart, helm, hooks, objects, template, text, values_file, values_files};

#[test]
fn every_values_file_passes_the_linter_and_renders() {
    for (name, values) in values_files() {
        helm(&["lint", "--strict", chart("skep").to_str().unwrap(), "--values", "-"], &values)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        template(&chart("skep"), &values).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[tokio::test]
async fn the_api_server_accepts_every_values_file() {
    let plane = ControlPlane::shared().await.unwrap();
    for namespace in [HOME, "team-a", "team-b", "123"] {
        plane.kubectl(&["create", "namespace", namespace]).await.unwrap().success().unwrap();
    }
    let warn = ["label", "namespace", HOME, "pod-security.kubernetes.io/warn=restricted"];
    plane.kubectl(&warn).await.unwrap().success().unwrap();
    for (name, values) in values_files() {
        let manifests = template(&chart("skep"), &values).unwrap();
        let arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-"];
        let output = plane.kubectl_with_input(&arguments, &manifests).await.unwrap();
        let restricted = !output.stderr.contains("would violate PodSecurity");
        assert_eq!(restricted, name != "features-off", "{name}: {}", output.stderr);
        let applied = output.success().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(applied.lines().count(), Objects::parse(&manifests).0.len(), "{name}");
    }
}

#[test]
fn by_default_there_is_one_pod_and_its_rights() {
    let objects = objects("");
    let expected = [
        "ClusterRole/skep-operator-manager-role",
        "ClusterRoleBinding/skep-operator-manager-rolebinding",
        "Deployment/skep-operator",
        "Role/skep-operator-leader-election-role",
        "RoleBinding/skep-operator-leader-election-rolebinding",
        "ServiceAccount/skep-operator",
    ];
    assert_eq!(objects.names(), expected);
    assert_eq!(objects.operator()["spec"]["replicas"], 1);

    let container = objects.container();
    assert_eq!(container["name"], "manager");
    assert_eq!(
        container["args"],
        json!(["operator", "--leader-elect", "--metrics-bind-address=:8080", "--health-probe-bind-address=:8081"])
    );
    assert_eq!(container.get("command"), None, "the image knows its entrypoint");
    assert_eq!(container["ports"][0], json!({"name": "metrics", "containerPort": 8080, "protocol": "TCP"}));
    assert_eq!(container["ports"][1], json!({"name": "health", "containerPort": 8081, "protocol": "TCP"}));
    assert_eq!(text(container, "/livenessProbe/httpGet/path"), "/healthz");
    assert_eq!(text(container, "/readinessProbe/httpGet/path"), "/readyz");
}

#[test]
fn by_default_the_pod_is_as_restricted_as_can_be() {
    let objects = objects("");
    let runtime_default = json!({"type": "RuntimeDefault"});
    assert_eq!(objects.pod()["securityContext"], json!({"runAsNonRoot": true, "seccompProfile": runtime_default}));
    let expected = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": 1000,
        "seccompProfile": runtime_default,
    });
    assert_eq!(objects.container()["securityContext"], expected);
}

#[test]
fn the_environment_has_an_order() {
    let objects = objects("");
    let expected = [
        ("UNSTRUCTURED_LOGS", "false"),
        ("POD_NAMESPACE", "<reference>"),
        ("TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR", "true"),
        ("TOOLHIVE_RUNNER_IMAGE", "localhost/skep:0.1.0"),
        ("VMCP_IMAGE", "localhost/skep:0.1.0"),
        ("TOOLHIVE_PROXY_HOST", "0.0.0.0"),
        ("TOOLHIVE_REGISTRY_API_IMAGE", "ghcr.io/stacklok/thv-registry-api:v1.3.0"),
    ];
    assert_eq!(objects.env(), expected);
    let namespace = json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    assert_eq!(objects.container()["env"][1]["valueFrom"], namespace);
}

#[test]
fn every_value_reaches_a_manifest() {
    let objects = objects(&values_file("every-value"));
    let expected = [
        "ClusterRole/hive-manager-role",
        "ClusterRoleBinding/hive-manager-rolebinding",
        "Deployment/hive",
        "Deployment/hive-image-discovery",
        "PodDisruptionBudget/hive",
        "Role/elect",
        "RoleBinding/elect-binding",
        "Service/hive-metrics",
        "ServiceAccount/beekeeper",
        "ValidatingAdmissionPolicy/hive-pod-templates",
        "ValidatingAdmissionPolicyBinding/hive-pod-templates",
    ];
    assert_eq!(objects.names(), expected);

    let deployment = objects.operator();
    assert_eq!(deployment["spec"]["replicas"], 2);
    let metadata = &deployment["spec"]["template"]["metadata"];
    assert_eq!(metadata["annotations"]["prometheus.io/scrape"], "true");
    assert_eq!(metadata["labels"]["team"], "bees");
    assert_eq!(metadata["labels"]["app.kubernetes.io/name"], "bees", "a label of the selector stays");

    let pod = objects.pod();
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull-operator"}]));
    assert_eq!(pod["serviceAccountName"], "beekeeper");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["fsGroup"], 2000);
    assert_eq!(pod["volumes"][0]["name"], "scratch");
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    assert_eq!(pod["tolerations"][0]["key"], "dedicated");
    assert!(pod["affinity"]["nodeAffinity"].is_object());

    let container = objects.container();
    assert_eq!(container["image"], "registry.example/skep:1");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["ports"][2]["containerPort"], 9443);
    assert_eq!(container["livenessProbe"]["periodSeconds"], 30);
    assert_eq!(container["readinessProbe"]["periodSeconds"], 3);
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
    assert_eq!(container["securityContext"]["runAsUser"], 2000);
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/tmp");

    let account = objects.only("ServiceAccount");
    assert_eq!(account["metadata"]["annotations"], json!({"iam.example/role": "skep"}));
    assert_eq!(account["metadata"]["labels"]["team"], "bees");
    assert_eq!(account["automountServiceAccountToken"], false);

    assert_eq!(objects.only("Role")["rules"][0]["verbs"], json!(["create", "get", "patch", "delete"]));
    let service = objects.only("Service");
    assert_eq!(
        service["spec"]["ports"][0],
        json!({"name": "metrics", "port": 9090, "targetPort": "metrics", "protocol": "TCP"})
    );
    assert_eq!(service["metadata"]["annotations"]["prometheus.io/scrape"], "true");
    assert_eq!(service["metadata"]["labels"]["team"], "bees");
    assert_eq!(objects.only("PodDisruptionBudget")["spec"]["minAvailable"], 1);
    let binding = &objects.only("ValidatingAdmissionPolicyBinding")["spec"];
    assert_eq!(binding["validationActions"], json!(["Warn", "Audit"]));
    assert_eq!(binding["matchResources"]["namespaceSelector"], json!({"matchLabels": {"team": "bees"}}));
    let policy = objects.only("ValidatingAdmissionPolicy").to_string();
    assert!(policy.contains(r#"name in [\"bees\"]"#), "{policy}");
    assert_eq!(hooks(&values_file("every-value")).only("Job")["spec"]["activeDeadlineSeconds"], 60);
}

#[test]
fn variables_of_the_user_come_first_and_those_of_the_chart_win() {
    let objects = objects(&values_file("every-value"));
    let names: Vec<_> = objects.env().into_iter().map(|entry| entry.0).collect();
    assert_eq!(names[..3], ["RUST_LOG", "NODE_NAME", "UNSTRUCTURED_LOGS"]);
    assert_eq!(names.iter().filter(|name| **name == "TOOLHIVE_RUNNER_IMAGE").count(), 1);
    assert_eq!(objects.variable("TOOLHIVE_RUNNER_IMAGE"), Some("registry.example/skep:2"));
    assert_eq!(objects.variable("VMCP_IMAGE"), Some("registry.example/skep:3"));
    assert_eq!(objects.variable("TOOLHIVE_PROXY_HOST"), Some("::"));
    assert_eq!(objects.variable("TOOLHIVE_REGISTRY_API_IMAGE"), Some("registry.example/registry-api:1"));
}

#[test]
fn a_selector_selects_its_own_pods_only() {
    let objects = objects(&values_file("every-value"));
    let of = |object: &Value| object["spec"]["selector"].clone();
    let operator = json!({
        "app.kubernetes.io/name": "bees",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/component": "operator",
    });
    assert_eq!(of(objects.operator())["matchLabels"], operator);
    assert_eq!(of(objects.only("PodDisruptionBudget"))["matchLabels"], operator);
    assert_eq!(of(objects.only("Service")), operator);
    let discovery = objects.named("Deployment", "hive-image-discovery");
    assert_eq!(of(discovery)["matchLabels"]["app.kubernetes.io/component"], "image-discovery");
}

#[test]
fn every_object_carries_the_labels_of_its_release() {
    for object in objects(&values_file("every-value")).0 {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], RELEASE, "{object}");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object}");
        assert_eq!(labels["helm.sh/chart"], concat!("skep-", env!("CARGO_PKG_VERSION")), "{object}");
    }
}

#[test]
fn names_can_follow_the_release() {
    let derived = objects(&values_file("derived-names"));
    assert_eq!(derived.operator()["metadata"]["name"], "rel-keeper");
    assert_eq!(derived.only("ServiceAccount")["metadata"]["name"], "rel-keeper");
    assert_eq!(derived.only("ClusterRole")["metadata"]["name"], "rel-keeper-manager-role");

    let values = "{fullnameOverride: '', nameOverride: rel}";
    assert_eq!(objects(values).operator()["metadata"]["name"], RELEASE, "a release that says it already");

    let long = "l".repeat(63);
    let objects = objects(&format!("{{fullnameOverride: {long}, operator: {{metricsService: {{enabled: true}}}}}}"));
    assert_eq!(objects.operator()["metadata"]["name"], *long);
    assert_eq!(text(objects.only("Service"), "/metadata/name").len(), 63);
}

#[test]
fn names_and_labels_of_digits_stay_texts() {
    let objects = objects("{nameOverride: '1', fullnameOverride: '2', operator: {serviceAccount: {name: '3'}}}");
    assert_eq!(objects.operator()["metadata"]["name"], "2");
    assert_eq!(objects.operator()["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"], "1");
    assert_eq!(objects.pod()["serviceAccountName"], "3");
}

#[test]
fn a_values_file_of_the_original_carries_over() {
    let objects = objects(&values_file("original"));
    let expected = [
        "ClusterRole/toolhive-operator-manager-role",
        "ClusterRoleBinding/toolhive-operator-manager-rolebinding",
        "Deployment/toolhive-operator",
        "Role/toolhive-operator-leader-election-role",
        "RoleBinding/toolhive-operator-leader-election-rolebinding",
        "ServiceAccount/toolhive-operator",
    ];
    assert_eq!(objects.names(), expected);
    for ignored in ["GOMEMLIMIT", "GOGC", "ENABLE_EXPERIMENTAL_FEATURES", "TOOLHIVE_USE_CONFIGMAP"] {
        assert_eq!(objects.variable(ignored), None);
    }
}

#[test]
fn bindings_name_the_roles_and_the_account_of_the_release() {
    for (name, values) in values_files() {
        let objects = objects(&values);
        let account = text(objects.pod(), "/serviceAccountName");
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            for binding in objects.of_kind(kind) {
                let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": HOME}]);
                assert_eq!(binding["subjects"], subject, "{name}");
                let role = objects.of_kind(text(binding, "/roleRef/kind")).find(|role| {
                    role["metadata"]["name"] == binding["roleRef"]["name"]
                        && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
                });
                assert!(role.is_some(), "{name}: {binding}");
            }
        }
    }
}

#[test]
fn a_foreign_service_account_is_used_and_not_made() {
    let objects = objects(&values_file("foreign-service-account"));
    assert_eq!(objects.of_kind("ServiceAccount").count(), 0);
    assert_eq!(objects.pod()["serviceAccountName"], "made-elsewhere");
}

#[test]
fn in_cluster_scope_the_rules_are_those_of_the_table() {
    let objects = objects("");
    let rules = [rbac::rules(), rbac::migrator_rules()].concat();
    assert_eq!(objects.only("ClusterRole")["rules"], as_json(&rules));
    assert_eq!(objects.only("Role")["rules"], as_json(&rbac::leader_election_rules()));
    assert_eq!(objects.variable("WATCH_NAMESPACE"), None);
}

#[test]
fn without_the_migrator_nothing_is_granted_for_it() {
    let objects = objects(&values_file("features-off"));
    assert_eq!(objects.only("ClusterRole")["rules"], as_json(&rbac::rules()));
    assert_eq!(objects.variable("TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR"), Some("false"));
}

#[test]
fn in_namespace_scope_nothing_is_cluster_wide() {
    let objects = objects(&values_file("namespace-scope"));
    assert_eq!(objects.of_kind("ClusterRole").count(), 0);
    assert_eq!(objects.of_kind("ClusterRoleBinding").count(), 0);
    assert_eq!(objects.variable("WATCH_NAMESPACE"), Some("team-a,team-b,123"));
    assert_eq!(objects.variable("TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR"), Some("false"));
    for kind in ["Role", "RoleBinding"] {
        let mut namespaces: Vec<_> = objects.of_kind(kind).map(|object| text(object, "/metadata/namespace")).collect();
        namespaces.sort_unstable();
        assert_eq!(namespaces, ["123", HOME, "team-a", "team-b"], "{kind}");
    }
    let held: Vec<_> = objects.of_kind("Role").filter(|role| role["metadata"]["namespace"] != HOME).collect();
    assert!(held.iter().all(|role| role["rules"] == as_json(&rbac::rules())));
}

#[test]
fn a_value_that_is_switched_off_renders_nothing() {
    let objects = objects(&values_file("features-off"));
    for field in ["livenessProbe", "readinessProbe", "resources", "securityContext", "ports"] {
        assert_eq!(objects.container().get(field), None, "{field}");
    }
    assert_eq!(objects.pod().get("securityContext"), None);
}

#[test]
fn the_operator_listens_where_its_probes_and_its_service_expect_it() {
    let ports = r#"[{"name": "metrics", "containerPort": 9090}, {"name": "health", "containerPort": 9091}]"#;
    let container = objects(&format!(r#"{{"operator": {{"ports": {ports}}}}}"#)).container().clone();
    let arguments =
        json!(["operator", "--leader-elect", "--metrics-bind-address=:9090", "--health-probe-bind-address=:9091"]);
    assert_eq!(container["args"], arguments);
}

#[test]
fn a_disruption_budget_of_zero_is_zero() {
    for (field, value) in [("maxUnavailable", 0), ("minAvailable", 0), ("minAvailable", 2)] {
        let budget = format!(r#"{{"enabled": true, "{field}": {value}}}"#);
        let objects = objects(&format!(r#"{{"operator": {{"podDisruptionBudget": {budget}}}}}"#));
        let spec = objects.only("PodDisruptionBudget")["spec"].clone();
        assert_eq!(spec[field], value, "{field}");
        let fields = ["maxUnavailable", "minAvailable"].iter().filter(|name| spec.get(**name).is_some());
        assert_eq!(fields.count(), 1, "{spec}");
    }
}

#[test]
fn an_autoscaler_takes_the_replicas_over() {
    let objects = objects(&values_file("autoscaling"));
    assert_eq!(objects.operator()["spec"].get("replicas"), None);
    let spec = &objects.only("HorizontalPodAutoscaler")["spec"];
    assert_eq!(spec["scaleTargetRef"]["name"], "skep-operator");
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(2), &json!(4)));
    let targets: Vec<_> = spec["metrics"].as_array().unwrap().iter().map(|metric| &metric["resource"]).collect();
    let target = |name: &str, percent: u32| json!({"name": name, "target": {"type": "Utilization", "averageUtilization": percent}});
    assert_eq!(targets, [&target("cpu", 80), &target("memory", 70)]);
}

#[test]
fn image_discovery_names_the_images_and_never_runs() {
    let objects = objects(&values_file("image-discovery"));
    let discovery = objects.named("Deployment", "skep-operator-image-discovery");
    assert_eq!(discovery["spec"]["replicas"], 0);
    let containers = discovery["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let images: Vec<_> =
        containers.iter().map(|container| (text(container, "/name"), text(container, "/image"))).collect();
    let expected = [
        ("runner", "localhost/skep:0.1.0"),
        ("vmcp", "localhost/skep:0.1.0"),
        ("registry-api", "ghcr.io/stacklok/thv-registry-api:v1.3.0"),
    ];
    assert_eq!(images, expected);
}

#[test]
fn pull_secrets_are_names_or_objects() {
    let objects = objects(&values_file("pull-secrets"));
    assert_eq!(objects.pod()["imagePullSecrets"], json!([{"name": "one"}]));
    assert_eq!(objects.variable("TOOLHIVE_DEFAULT_IMAGE_PULL_SECRETS"), Some("two,three.example"));
}

#[test]
fn the_default_redis_falls_back_to_the_shared_one_field_by_field() {
    let variables = |values: &str| {
        let objects = objects(values);
        ["ADDR", "SECRET_NAME", "SECRET_KEY"]
            .map(|name| objects.variable(&format!("TOOLHIVE_DEFAULT_REDIS_{name}")).map(str::to_owned))
    };
    let some = |values: [&str; 3]| values.map(|value| Some(value.to_owned()));
    assert_eq!(variables(""), [None, None, None]);
    assert_eq!(variables("{global: {redis: {existingSecret: s}}}"), [None, None, None], "no address, no Redis");
    assert_eq!(variables("{global: {redis: {host: h, port: 1}}}"), [Some("h:1".to_owned()), None, None]);
    assert_eq!(variables(&values_file("shared-redis")), some(["redis.shared:6379", "shared-redis", "redis-password"]));
    assert_eq!(variables(&values_file("every-value")), some(["redis.own:6379", "own-redis", "secret-key"]));
    let own_address = "{global: {redis: {host: h, existingSecret: s}}, operator: {defaultRedis: {addr: 'a:1'}}}";
    assert_eq!(variables(own_address), some(["a:1", "s", "redis-password"]));
}

/// The rules as they stand in a Role.
pub(crate) fn as_json(rules: &[Rule]) -> Value {
    let rule = |rule: &Rule| {
        let verbs: Vec<_> = rule.verbs.iter().map(|verb| verb.as_str()).collect();
        let mut json = json!({"apiGroups": [rule.group], "resources": rule.resources, "verbs": verbs});
        if !rule.names.is_empty() {
            json["resourceNames"] = json!(rule.names);
        }
        json
    };
    rules.iter().map(rule).collect()
}
