//! Values that the chart must refuse, each with a message that names the value.

use crate::helm::{chart, template};

/// Values, and what the refusal must say.
const REFUSED: &[(&str, &[&str])] = &[
    // Wrong types and values.
    ("{operator: {replicaCount: two}}", &["/operator/replicaCount", "want integer"]),
    ("{operator: {rbac: {scope: everywhere}}}", &["/operator/rbac/scope", "'cluster', 'namespace'"]),
    ("{operator: {image: ''}}", &["/operator/image"]),
    ("{operator: {podLabels: {team: 7}}}", &["/operator/podLabels/team", "want string"]),
    ("{operator: {env: [{name: A, value: true}]}}", &["/operator/env/0/value", "want string"]),
    ("{operator: {rbac: {scope: namespace, allowedNamespaces: ['Team A']}}}", &["/operator/rbac/allowedNamespaces/0"]),
    ("{operator: {rbac: null}}", &["/operator", "'rbac'"]),
    // Typing errors.
    ("{operatr: {}}", &["operatr"]),
    ("{operator: {replicas: 2}}", &["/operator", "replicas"]),
    ("{operator: {rbac: {allowedNamespace: [a]}}}", &["/operator/rbac", "allowedNamespace"]),
    ("{operator: {features: {storageVersionMigration: false}}}", &["/operator/features", "storageVersionMigration"]),
    ("{operator: {env: [{name: A, vlaue: b}]}}", &["/operator/env/0", "vlaue"]),
    ("{registryAPI: {img: a}}", &["/registryAPI", "img"]),
    // Values that do not go together.
    (
        "{operator: {features: {storageVersionMigrator: true}, rbac: {scope: namespace, allowedNamespaces: [a]}}}",
        &["operator.features.storageVersionMigrator=false", "operator.rbac.scope=cluster"],
    ),
    ("{operator: {rbac: {scope: namespace}}}", &["operator.rbac.allowedNamespaces is empty"]),
    ("{operator: {serviceAccount: {create: false}}}", &["operator.serviceAccount.name is empty"]),
    (
        "{operator: {autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 2}}}",
        &["operator.autoscaling.minReplicas is 3", "operator.autoscaling.maxReplicas is 2"],
    ),
    (
        "{operator: {autoscaling: {enabled: true, targetCPUUtilizationPercentage: null}}}",
        &["operator.autoscaling.targetCPUUtilizationPercentage"],
    ),
    (
        "{operator: {podDisruptionBudget: {enabled: true, minAvailable: 1, maxUnavailable: 1}}}",
        &["operator.podDisruptionBudget.minAvailable", "leave one out"],
    ),
    // Pull secrets that are neither names nor objects with a name.
    ("{operator: {defaultImagePullSecrets: [a, 7]}}", &["operator.defaultImagePullSecrets[1]: 7"]),
    ("{operator: {defaultImagePullSecrets: [{nmae: a}]}}", &["operator.defaultImagePullSecrets[0]: "]),
    ("{operator: {defaultImagePullSecrets: ['a,b']}}", &["operator.defaultImagePullSecrets[0]: \"a,b\""]),
    ("{operator: {imagePullSecrets: ['']}}", &["operator.imagePullSecrets[0]: \"\""]),
    // The images of the operator that Skep replaces.
    (
        "{operator: {image: 'ghcr.io/stacklok/toolhive/operator:v0.44.0'}}",
        &["operator.image is ghcr.io/stacklok/toolhive/operator:v0.44.0", "remove operator.image"],
    ),
];

#[test]
fn bad_values_are_refused_by_name() {
    for (values, expected) in REFUSED {
        let Err(message) = template(&chart("skep"), values) else { panic!("{values} was accepted") };
        for part in *expected {
            assert!(message.contains(part), "{values} was refused without `{part}`: {message}");
        }
    }
}

#[test]
fn bad_values_of_the_definitions_are_refused_by_name() {
    for (values, expected) in [("{crds: {keep: maybe}}", "/crds/keep"), ("{crds: {instal: false}}", "instal")] {
        let message = template(&chart("skep-crds"), values).unwrap_err();
        assert!(message.contains(expected), "{values}: {message}");
    }
}
