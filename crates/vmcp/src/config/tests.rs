use std::sync::Arc;

use serde_json::json;
use skep_api::virtual_config::OutgoingStrategy;
use skep_plan::error::PlanError;
use skep_plan::key::ObjectKind;
use skep_plan::virtual_server::{DiscoveredMember, Variable};

use super::*;

const SMALLEST: &str = r#"
name: demo
groupRef: demo-group
incomingAuth: {type: anonymous}
outgoingAuth:
  source: inline
  default: {type: unauthenticated}
  backends:
    gh: {type: header_injection, headerInjection: {headerName: X-Api-Key, headerValueEnv: GH_KEY}}
aggregation:
  conflictResolution: prefix
  conflictResolutionConfig: {prefixFormat: "{workload}_"}
  tools:
    - {workload: gh, filter: [search], overrides: {find: {name: search}}}
backends:
  - {name: gh, url: "http://gh:8080/mcp", transport: streamable-http}
"#;

fn problems(change: impl FnOnce(&str) -> String) -> Vec<String> {
    match Config::from_yaml(&change(SMALLEST)) {
        Ok(_) => Vec::new(),
        Err(ConfigError::Refused(
            VirtualConfigError::Invalid(problems) | VirtualConfigError::UnknownMembers(problems),
        )) => problems,
        Err(error) => vec![error.to_string()],
    }
}

fn replaced(from: &str, to: &str) -> Vec<String> {
    assert!(SMALLEST.contains(from), "{from}");
    problems(|text| text.replace(from, to))
}

#[test]
fn the_smallest_useful_configuration_is_read_with_its_defaults() {
    let config = Config::from_yaml(SMALLEST).unwrap();
    assert_eq!((config.name(), config.group()), ("demo", "demo-group"));
    assert_eq!(config.timeout("gh"), Duration::from_secs(30));
    let monitor = config.monitor();
    assert_eq!((monitor.interval.as_secs(), monitor.timeout.as_secs(), monitor.threshold), (30, 10, 3));
    assert_eq!(monitor.breaker, None);
    let environment = BTreeMap::from([("GH_KEY".to_owned(), "secret".to_owned())]);
    let place = Where { environment: &environment, own: None, addresses: skep_net::Addresses::Machine };
    let (backends, failed) = config.backends(place);
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!((&*backends[0].name, backends[0].auth_type.as_str()), ("gh", "header_injection"));
    assert!(!format!("{backends:?}").contains("secret"), "{backends:?}");
    let none = BTreeMap::new();
    let (_, failed) = config.backends(Where { environment: &none, ..place });
    assert_eq!(failed[0].to_string(), "backend `gh`: the environment variable `GH_KEY` is not set");
}

#[test]
fn timeouts_and_checks_are_those_of_the_configuration() {
    let operational = r"
operational:
  timeouts: {default: 5s, perWorkload: {gh: 1m}}
  failureHandling:
    healthCheckInterval: 7s
    healthCheckTimeout: 3s
    unhealthyThreshold: 2
    circuitBreaker: {enabled: true, failureThreshold: 4, timeout: 9s}
";
    let config = Config::from_yaml(&format!("{SMALLEST}{operational}")).unwrap();
    assert_eq!((config.timeout("gh").as_secs(), config.timeout("other").as_secs()), (60, 5));
    let MonitorSettings { interval, timeout, threshold, breaker } = config.monitor();
    let breaker = breaker.unwrap();
    assert_eq!((interval.as_secs(), timeout.as_secs(), threshold), (7, 3, 2));
    assert_eq!((breaker.failures, breaker.timeout.as_secs()), (4, 9));
}

#[test]
fn a_member_that_does_not_exist_is_an_error_wherever_it_stands() {
    assert_eq!(problems(|text| format!("{text}\nnmae: x")), ["nmae"]);
    assert_eq!(replaced("url: ", "ulr: x, url: "), ["backends[0].ulr"]);
    assert_eq!(replaced("filter: [search]", "filtre: [search]"), ["aggregation.tools[0].filtre"]);
    assert_eq!(replaced("{name: search}", "{nmae: search}"), ["aggregation.tools[0].overrides.find.nmae"]);
    assert_eq!(replaced("headerName: X-Api-Key", "header: X-Api-Key").len(), 1);
    // What is free by its nature stays free.
    assert!(problems(|text| format!("{text}metadata: {{anything: goes}}")).is_empty());
}

#[test]
fn what_does_not_fit_together_is_reported_in_the_words_of_the_original() {
    for (from, to, expected) in [
        ("name: demo\n", "", "name is required"),
        ("groupRef: demo-group\n", "", "group reference is required"),
        ("incomingAuth: {type: anonymous}\n", "", "incomingAuth is required"),
        ("type: anonymous", "type: basic", "incomingAuth.type must be one of: oidc, local, anonymous"),
        (
            "{type: anonymous}",
            "{type: oidc, oidc: {issuer: a, clientId: b, audience: ''}}",
            "incomingAuth.oidc.audience is required",
        ),
        ("{type: anonymous}", "{type: anonymous, authz: {type: cedar}}", "policies are required when type is 'cedar'"),
        (
            "{type: anonymous}",
            "{type: anonymous, authz: {type: opa}}",
            "incomingAuth.authz: type must be one of: cedar, none",
        ),
        ("source: inline", "source: magic", "outgoingAuth.source must be one of: inline, discovered"),
        ("prefixFormat: \"{workload}_\"", "prefixFormat: ''", "prefixFormat is required for prefix strategy"),
        (
            "conflictResolution: prefix",
            "conflictResolution: priority",
            "priorityOrder is required for priority strategy",
        ),
        ("workload: gh, ", "workload: '', ", "tools[0].workload is required"),
        ("{name: search}", "{}", "tools[0].overrides.find: at least one of name or description must be specified"),
        ("http://gh:8080/mcp", "ftp://gh", "backends[0].url must begin with http:// or https://"),
    ] {
        assert_eq!(replaced(from, to), [expected], "{to}");
    }
    let all = VirtualConfigError::Invalid(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(all.to_string(), "invalid configuration:\n  - a\n  - b");
}

#[test]
fn headers_that_are_about_the_connection_or_the_client_are_not_passed_through() {
    for name in ["Authorization", "cookie", "Host", "X-Forwarded-For", "not a name"] {
        let problems = problems(|text| format!("{text}passthroughHeaders: [X-Tenant, \"{name}\"]"));
        assert_eq!(problems.len(), 1, "{name}");
    }
    assert!(problems(|text| format!("{text}passthroughHeaders: [X-Tenant]")).is_empty());
}

#[test]
fn what_this_version_does_not_serve_and_what_is_out_of_range_is_refused() {
    for more in ["codeMode: {enabled: true}", "optimizer: {maxToolsToReturn: 51}"] {
        assert_eq!(problems(|text| format!("{text}{more}")).len(), 1, "{more}");
    }
    assert!(problems(|text| format!("{text}codeMode: {{enabled: false}}\noptimizer: {{}}")).is_empty());
}

#[test]
fn the_document_of_the_chain_says_what_the_configuration_says() {
    let incoming = "{type: oidc, oidc: {issuer: 'https://idp', clientId: c, clientSecretEnv: S, audience: 'https://a'}, \
                    authz: {type: cedar, policies: ['permit(principal, action, resource);']}}";
    let more = "audit: {enabled: true}\nrateLimiting: {shared: {maxTokens: 5, refillPeriod: {duration: 1m0s}}}\n\
                sessionStorage: {provider: redis, address: 'r:6379'}";
    let text = format!("{}{more}", SMALLEST.replace("{type: anonymous}", incoming));
    let config = Config::from_yaml(&text).unwrap();
    let mut environment = BTreeMap::from([("S".to_owned(), "secret".to_owned())]);
    let document = config.run_config("127.0.0.1", 4483, &mut environment).unwrap();
    let oidc = document.oidc_config.as_ref().unwrap();
    assert_eq!((oidc.issuer.as_str(), oidc.resource_url.as_str()), ("https://idp", "https://a"));
    assert_eq!(environment["TOOLHIVE_OIDC_CLIENT_SECRET"], "secret");
    assert!(!document.to_json_pretty().contains("secret"));
    assert_eq!(document.audit_config.as_ref().unwrap().component, "demo");
    let limits = document.rate_limit_config.as_ref().unwrap().shared.as_ref().unwrap();
    assert_eq!((limits.max_tokens, limits.refill_period.as_str()), (5, "1m0s"));
    let redis = document.scaling_config.as_ref().unwrap().session_redis.as_ref().unwrap();
    assert_eq!((redis.address.as_str(), redis.key_prefix.as_str()), ("r:6379", "thv:vmcp:session:"));
    assert!(document.authz_config.to_compact().contains("permit(principal, action, resource);"));
    let missing = config.run_config("h", 1, &mut BTreeMap::new()).unwrap_err();
    assert!(missing.to_string().contains("`S` is not set"), "{missing}");
}

#[test]
fn an_entry_is_dialled_at_public_addresses_only_unless_its_owner_allows_more() {
    use skep_net::Addresses::{Cluster, Machine, PublicOnly};
    let row = |more: &str| {
        let row = format!("name: gh, type: entry, url: \"http://gh:8080/mcp\"{more}");
        Config::from_yaml(&SMALLEST.replace("name: gh, url: \"http://gh:8080/mcp\"", &row)).unwrap()
    };
    let environment = BTreeMap::from([("GH_KEY".to_owned(), "secret".to_owned())]);
    let of = |config: &Config, addresses| {
        let (backends, _) = config.backends(Where { environment: &environment, own: None, addresses });
        backends[0].addresses
    };
    let private = ", metadata: {allow_private_endpoint: \"true\"}";
    assert_eq!((of(&row(""), Cluster), of(&row(""), Machine)), (PublicOnly, Machine));
    assert_eq!(of(&row(private), Cluster), Cluster);
    assert_eq!(of(&Config::from_yaml(SMALLEST).unwrap(), Cluster), Cluster, "a member is in the cluster");

    // A backend that is called with another secret is another one.
    let config = row("");
    let digest = |key: &str| {
        let own = BTreeMap::from([("GH_KEY".to_owned(), key.to_owned())]);
        let place = Where { environment: &environment, own: Some(&own), addresses: Machine };
        config.backends(place).0[0].digest
    };
    assert_eq!(digest("a"), digest("a"));
    assert_ne!(digest("a"), digest("b"));
}

/// What the planner writes, as its golden documents show it, is what the process reads.
#[test]
fn the_documents_of_the_operator_are_accepted() {
    let golden = include_str!("../../../runconfig/tests/golden/virtual_config/15-virtual.yaml");
    let config = Config::from_yaml(golden).unwrap();
    assert_eq!((config.name(), config.group()), ("virtual", "team"));
    for (method, said) in [("unresolved", "cannot be resolved"), ("xaa", "not supported")] {
        let text = SMALLEST.replace("gh: {type: header_injection,", &format!("gh: {{type: {method},"));
        let (specs, failed) = Config::from_yaml(&text).unwrap().backends(Where {
            environment: &BTreeMap::new(),
            own: None,
            addresses: skep_net::Addresses::Cluster,
        });
        assert!(specs.is_empty() && failed[0].to_string().contains(said), "{failed:?}");
    }
}

#[test]
fn what_a_member_says_counts_where_backends_are_discovered() {
    const HEADER: &str = "{type: header_injection, headerInjection: {headerName: X-Key, headerValueEnv: KEY}}";
    let text = |outgoing: &str| {
        let (before, rest) = SMALLEST.split_once("outgoingAuth:").unwrap();
        let (_, after) = rest.split_once("aggregation:").unwrap();
        Config::from_yaml(&format!("{before}outgoingAuth: {outgoing}\naggregation:{after}")).unwrap()
    };
    let own: OutgoingStrategy = serde_json::from_value(json!({ "type": "unauthenticated" })).unwrap();
    let broken = PlanError::InvalidSpec("type bearerToken cannot be used".to_owned());
    let chosen = |outgoing: &str, own: Result<Option<OutgoingStrategy>, PlanError>| {
        let environment = BTreeMap::from([("KEY".to_owned(), "k".to_owned())]);
        let place = Where { environment: &environment, own: None, addresses: skep_net::Addresses::Cluster };
        let member = DiscoveredMember {
            backend: text(outgoing).document().backends[0].clone(),
            strategy: own,
            auth_config_ref: Some("auth".to_owned()),
            strategy_variables: BTreeMap::from([("OWN".to_owned(), Variable::Secret("s".to_owned(), "k".to_owned()))]),
            variables: BTreeMap::new(),
            ca_bundle: None,
        };
        let read = std::cell::Cell::new(false);
        let value = |_: ObjectKind, _: &str, _: &str| {
            read.set(true);
            Ok(Arc::from(&b"v"[..]))
        };
        let spec = text(outgoing).found(&member, &value, place);
        spec.map(|spec| {
            // Only what is in force is reported.
            assert_eq!(spec.auth_config_ref.as_deref(), read.get().then_some("auth"));
            (spec.auth_type, read.get())
        })
    };
    let none = || ("unauthenticated".to_owned(), false);
    let of_own = || ("unauthenticated".to_owned(), true);
    let header = || ("header_injection".to_owned(), false);
    for (outgoing, given, expected) in [
        ("{source: discovered}", Some(&own), of_own()),
        ("{source: discovered}", None, none()),
        ("{source: discovered, default: HEADER}", Some(&own), of_own()),
        ("{source: discovered, default: HEADER}", None, header()),
        ("{source: discovered, default: {type: discovered}}", None, none()),
        ("{source: discovered, backends: {gh: HEADER}}", Some(&own), header()),
        ("{source: discovered, default: HEADER, backends: {gh: {type: discovered}}}", Some(&own), of_own()),
        ("{source: discovered, default: HEADER, backends: {gh: {type: discovered}}}", None, none()),
        ("{source: inline, default: HEADER}", Some(&own), header()),
    ] {
        let outgoing = outgoing.replace("HEADER", HEADER);
        assert_eq!(chosen(&outgoing, Ok(given.cloned())), Ok(expected), "{outgoing}");
    }
    // What a member says and cannot be resolved is of concern only where it is chosen, and nothing takes its place then.
    for (outgoing, expected) in [
        ("{source: discovered, backends: {gh: HEADER}}", Ok(header())),
        ("{source: inline, default: HEADER}", Ok(header())),
        ("{source: discovered, default: HEADER}", Err(broken.to_string())),
        ("{source: discovered, default: HEADER, backends: {gh: {type: discovered}}}", Err(broken.to_string())),
    ] {
        let outgoing = outgoing.replace("HEADER", HEADER);
        assert_eq!(chosen(&outgoing, Err(broken.clone())), expected, "{outgoing}");
    }
}

#[test]
fn webhooks_are_those_of_any_proxy() {
    const WEBHOOKS: &str = r"
webhooks:
  mutating:
    - {name: change, url: 'https://h.example/m', failurePolicy: ignore}
  validating:
    - name: review
      url: https://h.example/v
      timeout: 2s
      hmacSecretRef: /keys/hmac
      tlsConfig: {caBundlePath: /keys/ca.crt, clientCertPath: /keys/tls.crt, clientKeyPath: /keys/tls.key}
";
    let text = format!("{SMALLEST}{WEBHOOKS}");
    let config = Config::from_yaml(&text).unwrap();
    let run_config = config.run_config("127.0.0.1", 1, &mut BTreeMap::new()).unwrap();
    let expected = r#"{
        "mutating_webhooks": [{"name": "change", "url": "https://h.example/m", "timeout": 0, "failure_policy": "ignore"}],
        "validating_webhooks": [{"name": "review", "url": "https://h.example/v", "timeout": 2000000000, "failure_policy": "fail",
            "hmac_secret_ref": "/keys/hmac", "tls_config": {"ca_bundle_path": "/keys/ca.crt", "client_cert_path": "/keys/tls.crt",
            "client_key_path": "/keys/tls.key"}}]
    }"#;
    let expected = skep_runconfig::RunConfig::from_slice(expected.as_bytes()).unwrap();
    assert_eq!(run_config.mutating_webhooks, expected.mutating_webhooks);
    assert_eq!(run_config.validating_webhooks, expected.validating_webhooks);
    for (from, to, problem) in [
        ("timeout: 2s", "tiemout: 2s", "webhooks.validating[0].tiemout"),
        (
            "timeout: 2s",
            "timeout: 31s",
            "webhooks.validating[0].timeout: `31s` is out of bounds; choose from 1s to 30s",
        ),
        (
            "https://h.example/v",
            "http://h.example/v",
            "webhooks.validating[0].url: `http://h.example/v` must begin with",
        ),
        ("/keys/ca.crt", "ca.crt", "webhooks.validating[0].tlsConfig.caBundlePath: it must be an absolute path"),
        (
            ", clientKeyPath: /keys/tls.key",
            "",
            "webhooks.validating[0].tlsConfig: a certificate and its key go together",
        ),
        ("/keys/hmac", "''", "webhooks.validating[0].hmacSecretRef: it is empty"),
        (
            "failurePolicy: ignore",
            "failurePolicy: maybe",
            "failed to parse YAML: not of the expected shape: unknown variant `maybe`",
        ),
    ] {
        assert!(WEBHOOKS.contains(from), "{from}");
        let found = problems(|_| text.replace(from, to));
        assert!(found.len() == 1 && found[0].starts_with(problem), "{to}: {found:?}");
    }
    assert_eq!(
        problems(|text| format!("{text}webhooks: {{}}")),
        ["webhooks: there is no webhook; put at least one into validating or mutating"]
    );
}
