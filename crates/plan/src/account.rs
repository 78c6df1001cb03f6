//! The identity and the permissions of a pod: a ServiceAccount, a Role and the binding between them, all of one name.

use serde_json::{Value, json};
use skep_api::resource::Resource;

use crate::child::{Child, ChildKind};
use crate::grants::Role;

/// A ServiceAccount without rights.
pub(crate) fn account(me: &Resource, name: &str, pull_secrets: &[Value]) -> Child {
    let body = if pull_secrets.is_empty() { json!({}) } else { json!({ "imagePullSecrets": pull_secrets }) };
    Child::new(me, ChildKind::ServiceAccount, name, json!({}), json!({}), body)
}

/// A ServiceAccount with the rights of a Role.
pub(crate) fn account_with(me: &Resource, name: &str, role: &Role, pull_secrets: &[Value]) -> Vec<Child> {
    let binding = json!({
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": me.namespace() }],
    });
    vec![
        account(me, name, pull_secrets),
        Child::new(me, ChildKind::Role, name, json!({}), json!({}), json!({ "rules": role.rules() })),
        Child::new(me, ChildKind::RoleBinding, name, json!({}), json!({}), binding),
    ]
}
