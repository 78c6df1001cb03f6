use super::*;

const SECRETS: &str = "
apiVersion: v1
kind: Secret
metadata: {name: tickets}
stringData: {token: hush}
---
apiVersion: v1
kind: Secret
metadata: {name: more}
stringData: {other: quiet}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: debug, ca.crt: pem}
---
";

fn ours(kind: &str, name: &str, spec: &str) -> String {
    format!("apiVersion: toolhive.stacklok.dev/v1beta1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n---\n")
}

fn planned_all(text: &str) -> (Vec<LocalProxy>, Vec<Entry>) {
    let manifests = Manifests::of("f.yaml", text).unwrap();
    let is_invalid = |one: &Object| matches!(one.content, Content::Invalid(_));
    assert!(!manifests.objects.iter().any(is_invalid), "{:?}", manifests.objects);
    all(&manifests)
}

fn one(text: &str) -> LocalProxy {
    let (mut proxies, reported) = planned_all(text);
    assert!(proxies.len() == 1 && reported.is_empty(), "{reported:?}");
    proxies.remove(0)
}

fn refused(text: &str) -> String {
    let (proxies, reported) = planned_all(text);
    assert!(proxies.is_empty());
    match &reported[..] {
        [Entry { state: State::Refused(why), .. }] => why.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_listens_on_loopback_at_its_own_port() {
    let proxy = one(&ours("MCPServer", "s", "{image: 'npx://a@1', proxyPort: 9001, proxyMode: sse}"));
    assert_eq!(proxy.settings.listen.to_string(), "127.0.0.1:9001");
    assert_eq!(proxy.entry.transport, Some("stdio"));
    let http = one(&ours("MCPServer", "s", "{image: 'uvx://a@1', transport: streamable-http, mcpPort: 9002}"));
    assert_eq!((http.settings.listen.port(), http.entry.transport), (8080, Some("streamable-http")));
}

#[test]
fn secrets_of_a_server_reach_its_variables_and_nothing_that_can_be_shown() {
    let spec =
        "{image: 'exec://s', secrets: [{name: tickets, key: token, targetEnvName: TOKEN}, {name: more, key: other}],
        env: [{name: LEVEL, value: info}],
        podTemplateSpec: {spec: {containers: [{name: mcp, env: [
            {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}},
            {name: GONE, valueFrom: {secretKeyRef: {name: tickets, key: gone, optional: true}}}]}]}}}";
    let proxy = one(&format!("{SECRETS}{}", ours("MCPServer", "s", spec)));
    let wanted = [
        "SERVER_VARIABLE_LEVEL,target=LEVEL",
        "SERVER_VARIABLE_TOKEN,target=TOKEN",
        "SERVER_VARIABLE_other,target=other",
    ];
    let mut given = proxy.settings.config.secrets.clone();
    given.sort();
    assert_eq!(given, wanted);
    let value =
        |name: &str| proxy.environment.get(&format!("TOOLHIVE_SECRET_SERVER_VARIABLE_{name}")).map(String::as_str);
    assert_eq!((value("TOKEN"), value("other"), value("LEVEL")), (Some("hush"), Some("quiet"), Some("debug")));
    let shown = format!("{:?} {:?}", proxy.settings, proxy.entry);
    assert!(!shown.contains("hush") && !shown.contains("quiet"), "{shown}");
}

#[test]
fn a_remote_proxy_gets_the_variables_of_its_pod_but_not_its_home() {
    let spec = "{remoteUrl: 'https://mcp.example/mcp', transport: sse,
        headerForward: {addHeadersFromSecret: [{headerName: x-key, valueSecretRef: {name: tickets, key: token}}]}}";
    let proxy = one(&format!("{SECRETS}{}", ours("MCPRemoteProxy", "r", spec)));
    let secrets = proxy.environment.iter().filter(|(name, _)| name.starts_with(SECRET));
    assert_eq!(secrets.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["hush"]);
    assert_eq!(proxy.environment.get("HOME"), std::env::var("HOME").ok().as_ref());
    assert_eq!(proxy.environment.get("TOOLHIVE_RUNTIME"), None);
    assert_eq!(proxy.entry.transport, Some("sse"));
}

#[test]
fn resources_that_need_a_cluster_are_refused_with_advice() {
    let inline = |more: &str| {
        let issuer = "issuer: 'https://idp.example'";
        ours("MCPOIDCConfig", "idp", &format!("{{type: inline, inline: {{{issuer}, clientId: c{more}}}}}"))
    };
    let guarded = ours("MCPServer", "s", "{image: 'exec://s', oidcConfigRef: {name: idp, audience: a}}");
    let server = |spec: &str| ours("MCPServer", "s", spec);
    for (text, words) in [
        (server("{image: 'ghcr.io/a/b:1'}"), "exec://program, npx://package or uvx://package"),
        (server("{image: 'exec://s', toolConfigRef: {name: nope}}"), "MCPToolConfig `nope` not found"),
        (server("{image: 'exec://s', secrets: [{name: nope, key: k}]}"), "Secret `nope` is not in the files"),
        (server("{image: 'exec://s', secrets: [{name: tickets, key: k}]}"), "Secret `tickets` has no key `k`"),
        (
            server("{image: 'exec://s', volumes: [{name: data, hostPath: /srv, mountPath: /data}]}"),
            "volume `data`; on this machine",
        ),
        (
            server(
                "{image: 'exec://s', podTemplateSpec: {spec: {containers: [{name: mcp, envFrom: [{secretRef: {name: tickets}}]}]}}}",
            ),
            "envFrom is not read here",
        ),
        (
            inline(", caBundleRef: {configMapRef: {name: settings, key: ca.crt}}") + &guarded,
            "the volume `oidc-ca-bundle-settings`, which only a pod has",
        ),
        (
            ours("MCPOIDCConfig", "idp", "{type: kubernetesServiceAccount, kubernetesServiceAccount: {}}") + &guarded,
            "/var/run/secrets/kubernetes.io/",
        ),
    ] {
        let why = refused(&format!("{SECRETS}{text}"));
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn the_secret_files_of_webhooks_are_in_memory_and_are_not_shown() {
    let webhooks = ours(
        "MCPWebhookConfig",
        "hooks",
        "{validating: [{name: v, url: 'https://h.example', hmacSecretRef: {name: tickets, key: token}}]}",
    );
    let server = ours("MCPServer", "s", "{image: 'exec://s', webhookConfigRef: {name: hooks}}");
    let proxy = one(&format!("{SECRETS}{webhooks}{server}"));
    let shown = format!("{:?}", proxy.settings.files);
    assert!(shown.contains(&proxy.settings.config.validating_webhooks[0].hmac_secret_ref), "{shown}");
    assert!(!shown.contains("hush"), "{shown}");
    let missing = webhooks.replace("tickets", "nope");
    assert!(refused(&format!("{SECRETS}{missing}{server}")).contains("Secret `nope`"));
}

#[test]
fn configuration_kinds_are_silent_and_kinds_for_clusters_are_reported() {
    let text = ours("MCPGroup", "g", "{}")
        + &ours("MCPToolConfig", "t", "{toolsFilter: [a]}")
        + &ours("MCPServerEntry", "e", "{remoteUrl: 'https://a.example/mcp', transport: sse, groupRef: {name: g}}")
        + &ours("EmbeddingServer", "b", "{}");
    let (proxies, reported) = planned_all(&text);
    assert!(proxies.is_empty());
    let reported: Vec<_> =
        reported.iter().map(|one| (one.name.as_str(), matches!(one.state, State::Skipped(_)))).collect();
    assert_eq!(reported, [("b", true)]);
}
