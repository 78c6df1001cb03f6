//! The names of children, each a function of the resource's own. No other code spells them.

const REGISTRY_API_SUFFIX: &str = "-api";

/// A child that has the name of its resource.
pub fn same(name: &str) -> String {
    name.to_owned()
}

/// The proxy's Service of an MCPServer.
pub fn server_service(name: &str) -> String {
    skep_api::annotation::proxy_service(name)
}

/// The proxy's Service of an MCPRemoteProxy.
pub fn remote_proxy_service(name: &str) -> String {
    format!("mcp-{name}-remote-proxy")
}

/// The Service of a virtual server.
pub fn virtual_service(name: &str) -> String {
    format!("vmcp-{name}")
}

/// The ConfigMap with the RunConfig.
pub fn run_config(name: &str) -> String {
    format!("{name}-runconfig")
}

/// The ConfigMap with policies that were written in place.
pub fn inline_authz(name: &str) -> String {
    format!("{name}-authz-inline")
}

/// ServiceAccount, Role and RoleBinding of an MCPServer's proxy.
pub fn server_runner(name: &str) -> String {
    format!("{name}-proxy-runner")
}

/// The ServiceAccount of an MCPServer's own pods.
pub fn server_account(name: &str) -> String {
    format!("{name}-sa")
}

/// ServiceAccount, Role and RoleBinding of an MCPRemoteProxy.
pub fn remote_proxy_runner(name: &str) -> String {
    format!("{name}-remote-proxy-runner")
}

/// ServiceAccount, Role and RoleBinding of a virtual server.
pub fn virtual_account(name: &str) -> String {
    format!("{name}-vmcp")
}

/// The ConfigMap with a virtual server's configuration.
pub fn virtual_config(name: &str) -> String {
    format!("{name}-vmcp-config")
}

/// The Secret with the key that binds a virtual server's sessions.
pub fn virtual_session_key(name: &str) -> String {
    format!("{name}-hmac-secret")
}

/// ServiceAccount, Role and RoleBinding of a registry.
pub fn registry_account(name: &str) -> String {
    format!("{name}-registry-api")
}

/// The ConfigMap with a registry's configuration.
pub fn registry_config(name: &str) -> String {
    format!("{name}-registry-server-config")
}

/// Deployment and Service of a registry, and the `app.kubernetes.io/name` of its pods.
pub fn registry_api(name: &str) -> String {
    format!("{name}{REGISTRY_API_SUFFIX}")
}

/// The registry to which [`registry_api`] gives this name.
pub fn registry_of(api: &str) -> Option<&str> {
    api.strip_suffix(REGISTRY_API_SUFFIX)
}

/// Where a Service is reached inside the cluster.
pub fn host(service: &str, namespace: &str) -> String {
    format!("{service}.{namespace}.svc.cluster.local")
}
