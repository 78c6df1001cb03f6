use std::sync::Mutex;

use super::*;
use crate::observe::Observation;

fn config(json: &str) -> RunConfig {
    RunConfig::from_slice(json.as_bytes()).unwrap()
}

fn kinds(config: &RunConfig) -> Vec<String> {
    built(config).into_iter().map(|one| one.kind).collect()
}

#[test]
fn a_chain_is_built_in_the_one_order_when_none_is_listed() {
    assert_eq!(kinds(&config("{}")), ["auth", "mcp-parser"]);
    let all = config(
        r#"{"audit_config":{},"embedded_auth_server_config":{},"token_exchange_config":{},"tools_filter":["a"],
            "telemetry_config":{},"rate_limit_config":{},"mutating_webhooks":[{"name":"a"}],
            "validating_webhooks":[{"name":"b"}],"authz_config":{"type":"cedarv1"},"aws_sts_config":{},
            "additional_middleware_configs":[{"type":"strip-auth","parameters":{}}]}"#,
    );
    let order = [
        "audit",
        "auth",
        "upstreamswap",
        "tokenexchange",
        "tool-filter",
        "tool-call-filter",
        "mcp-parser",
        "telemetry",
        "ratelimit",
        "mutating-webhook",
        "validating-webhook",
        "authorization",
        "awssts",
        "strip-auth",
    ];
    assert_eq!(kinds(&all), order);
}

#[test]
fn a_list_of_the_planner_is_in_the_order_of_a_chain_that_is_built_here() {
    let all = config(
        r#"{"audit_config":{},"embedded_auth_server_config":{},"token_exchange_config":{},"tools_override":{"a":{"name":"b"}},
            "telemetry_config":{},"rate_limit_config":{},"mutating_webhooks":[{"name":"a"}],"validating_webhooks":[{"name":"b"}],
            "authz_config":{"type":"cedarv1"},"aws_sts_config":{},"remote_url":"http://a",
            "header_forward":{"add_plaintext_headers":{"x-a":"1"}},
            "additional_middleware_configs":[{"type":"strip-auth","parameters":{}}]}"#,
    );
    let planned = middleware::list(&all);
    let built = built(&all);
    let in_both: Vec<_> = planned.iter().filter(|one| built.contains(one)).collect();
    assert_eq!(in_both, built.iter().collect::<Vec<_>>());
    // What the planner lists beyond that, this proxy has in any case.
    let rest: Vec<_> = planned.iter().filter(|one| !built.contains(one)).map(|one| one.kind.as_str()).collect();
    assert_eq!(rest, ["bodylimit", "header-forward", "recovery"]);
}

#[test]
fn guards_that_are_not_there_stop_the_start_and_unknown_ones_are_named() {
    for (kind, parameters, words) in [
        ("auth", r#"{"oidc_config":{"Issuer":"https://a"}}"#, "`auth` is not in this version"),
        ("authorization", "{}", "`authorization` is not in this version"),
        ("ratelimit", "{}", "`ratelimit` is not in this version"),
        ("validating-webhook", "{}", "`validating-webhook` is not in this version"),
        ("mutating-webhook", "{}", "`mutating-webhook` is not in this version"),
        ("tokenexchange", "{}", "`tokenexchange` is not in this version"),
        ("nonsense", "{}", "unsupported middleware type: nonsense"),
        ("tool-filter", "{}", "neither a tool to show nor one to rename"),
        ("header-forward", r#"{"add_headers":{"Host":"a"}}"#, "`Host` cannot be set"),
        ("bodylimit", r#"{"max_bytes":"many"}"#, "`max_bytes`"),
    ] {
        let listed = format!(r#"{{"middleware_configs":[{{"type":"{kind}","parameters":{parameters}}}]}}"#);
        let message = Chain::new(&config(&listed), 0).unwrap_err().to_string();
        assert!(message.contains(words), "{kind}: {message}");
    }
}

#[test]
fn the_smallest_body_limit_counts_and_none_means_eight_mebibytes() {
    for (listed, limit) in [
        ("[]", BODY_LIMIT),
        (r#"[{"type":"bodylimit","parameters":{"max_bytes":0}}]"#, BODY_LIMIT),
        (
            r#"[{"type":"bodylimit","parameters":{"max_bytes":8388608}},{"type":"bodylimit","parameters":{"max_bytes":10}}]"#,
            10,
        ),
        (r#"[{"type":"bodylimit","parameters":{"max_bytes":16777216}}]"#, 16_777_216),
    ] {
        let chain = Chain::new(&config(&format!(r#"{{"host":"0.0.0.0","middleware_configs":{listed}}}"#)), 0).unwrap();
        assert_eq!(chain.body_limit(), limit, "{listed}");
    }
}

/// The layers, outermost first, by their names.
fn layers(json: &str) -> Vec<String> {
    let chain = Chain::new(&config(json), 8080).unwrap();
    let name = |layer: &Layer| format!("{layer:?}").split(['(', ' ']).next().unwrap_or_default().to_owned();
    chain.layers.iter().map(name).collect()
}

#[test]
fn pages_are_judged_first_and_headers_for_the_server_are_added_last() {
    let all =
        r#""allowed_origins":["http://a"],"tools_filter":["a"],"header_forward":{"add_plaintext_headers":{"x-a":"1"}}"#;
    let additional = r#""additional_middleware_configs":[{"type":"strip-auth","parameters":{}}]"#;
    let remote = r#""remote_url":"http://b""#;
    assert_eq!(
        layers(&format!("{{{all},{additional},{remote}}}")),
        ["Origin", "Local", "Tools", "ToolCalls", "Parser", "StripAuth", "HeaderForward"]
    );
    assert_eq!(
        layers(&format!("{{{all},{additional}}}")),
        ["Origin", "Local", "Tools", "ToolCalls", "Parser", "StripAuth"],
        "only a remote server gets headers"
    );
    // A list that is there is taken as it is, twice if it says so.
    let listed = r#""middleware_configs":[{"type":"mcp-parser","parameters":{}},{"type":"auth","parameters":{}},
        {"type":"mcp-parser","parameters":{}},{"type":"bodylimit","parameters":{"max_bytes":9}},{"type":"recovery","parameters":null}]"#;
    assert_eq!(
        layers(&format!("{{{all},{remote},{listed}}}")),
        ["Origin", "Parser", "Local", "Parser", "HeaderForward"]
    );
    let own = r#""middleware_configs":[{"type":"header-forward","parameters":{"add_headers":{"x-a":"1"}}}]"#;
    assert_eq!(layers(&format!("{{{all},{remote},{own}}}")), ["Origin", "HeaderForward"]);
    assert_eq!(layers(r#"{"host":"0.0.0.0"}"#), ["Local", "Parser"], "nobody knows from where pages may call");
}

#[test]
fn what_the_members_of_a_run_config_ask_for_and_is_not_there_stops_the_start() {
    for member in [
        r#""oidc_config":{"Issuer":"https://a"}"#,
        r#""embedded_auth_server_config":{"upstreams":[{"type":"oidc"},{"type":"oidc"}]}"#,
        r#""embedded_auth_server_config":{"disable_upstream_token_injection":true}"#,
        r#""token_exchange_config":{"token_url":"https://a"}"#,
        r#""rate_limit_config":{"shared":{"maxTokens":1,"refillPeriod":"1m0s"}}"#,
        r#""validating_webhooks":[{"name":"a","url":"https://a"}]"#,
        r#""mutating_webhooks":[{"name":"a","url":"https://a"}]"#,
        r#""authz_config":{"type":"cedarv1"}"#,
        r#""authz_config_path":"/a""#,
        r#""aws_sts_config":{"region":"a"}"#,
        r#""upstream_swap_config":{"provider_name":"a"},"embedded_auth_server_config":{}"#,
    ] {
        let built = Chain::new(&config(&format!(r#"{{"host":"0.0.0.0",{member}}}"#)), 0);
        assert!(matches!(built, Err(Wrong::NotYet { .. })), "{member}");
    }
}

#[test]
fn the_table_of_what_is_not_supported_is_what_the_chain_refuses() {
    let guards = ["auth", "authorization", "awssts", "obo", "ratelimit", "tokenexchange", "upstreamswap"];
    for kind in guards.into_iter().chain(["mutating-webhook", "validating-webhook"]) {
        let parameters = if kind == "auth" { r#"{"oidc_config":{"issuer":"https://a"}}"# } else { "{}" };
        let listed = format!(r#"{{"middleware_configs":[{{"type":"{kind}","parameters":{parameters}}}]}}"#);
        let is_refused = Chain::new(&config(&listed), 0).is_err();
        let is_listed = UNSUPPORTED.contains(&Feature::of_middleware(kind).unwrap());
        assert_eq!(is_refused, is_listed, "{kind}: the operator would plan otherwise than the proxy runs");
    }
}

fn call(name: &str) -> Exchange {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
    let mut headers = HeaderMap::new();
    headers.insert("mcp-method", HeaderValue::from_static("tools/call"));
    headers.insert("mcp-name", HeaderValue::from_str(name).unwrap());
    let peer = skep_net::Peer { address: ([127, 0, 0, 1], 1).into(), tls: false };
    let content = Content::Message(skep_mcp::Message::parse(body.into()).unwrap());
    let mut request = http::Request::new(());
    (*request.method_mut(), *request.headers_mut()) = (http::Method::POST, headers);
    Exchange::new(request.into_parts().0, peer, content)
}

#[test]
fn a_call_is_judged_by_what_goes_to_the_server_and_its_headers_say_the_same() {
    let renames = r#"{"type":"tool-call-filter","parameters":{"tools_override":{"secret":{"name":"harmless"}}}}"#;
    let hides = r#"{"type":"tool-call-filter","parameters":{"filter_tools":["harmless"]}}"#;
    let chain = |listed: &str| {
        let config = config(&format!(r#"{{"host":"0.0.0.0","middleware_configs":[{listed}]}}"#));
        Chain::new(&config, 0).unwrap()
    };
    let mut passed = call("harmless");
    assert!(matches!(chain(renames).request(&mut passed), Flow::Next));
    assert!(passed.content.bytes().windows(8).any(|part| part == b"\"secret\""));
    assert_eq!(passed.headers["mcp-name"], "secret", "a server of today compares them");
    // The filter saw a name that it lets pass, before a later layer made another one of it.
    let Flow::Answer(answer) = chain(&format!("{hides},{renames}")).request(&mut call("harmless")) else {
        panic!("what the filter hides was called");
    };
    assert_eq!(answer.status(), StatusCode::OK, "as an error of the protocol");
    assert!(matches!(chain(hides).request(&mut call("harmless")), Flow::Next));
}

/// Remembers what it saw.
#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

#[derive(Debug)]
struct Page(Arc<Diary>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Diary {
    fn begin(self: Arc<Self>, exchange: &mut Exchange) -> Box<dyn Observation> {
        self.note(format!("began, called by {}", exchange.identity.as_ref().map_or("nobody", |_| "somebody")));
        Box::new(Page(self))
    }
}

impl Observation for Page {
    fn answered(&mut self, exchange: &Exchange, answer: &Response<Body>) {
        let resource = exchange.resource().unwrap_or_default().into_owned();
        self.0.note(format!("{resource} {}", answer.status()));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.0.note("ended".to_owned());
    }
}

#[test]
fn who_observes_sees_the_calls_that_come_to_its_place_until_their_answers_have_ended() {
    let listed = r#"[{"type":"tool-call-filter","parameters":{"filter_tools":["a","b","x"]}},
        {"type":"telemetry","parameters":{}},{"type":"auth","parameters":{}},
        {"type":"tool-call-filter","parameters":{"filter_tools":["a","c"],"tools_override":{"x":{"name":"a"}}}}]"#;
    let mut chain = Chain::new(&config(&format!(r#"{{"host":"0.0.0.0","middleware_configs":{listed}}}"#)), 0).unwrap();
    let diary = Arc::new(Diary::default());
    chain.add_telemetry(diary.clone());
    let run = |name: &str| {
        let mut exchange = call(name);
        let answer = match chain.request(&mut exchange) {
            Flow::Answer(answer) => answer,
            // Its end is far.
            Flow::Next => Response::new(Body::channel(1).1),
        };
        let answer = exchange.observed(answer);
        drop(exchange);
        (answer, diary.take())
    };
    let (answer, seen) = run("a");
    assert_eq!(seen, ["began, called by nobody", "x 200 OK"], "as it went to the server, and not yet ended");
    drop(answer);
    assert_eq!(diary.take(), ["ended"]);
    assert_eq!(run("b").1, ["began, called by nobody", "b 200 OK", "ended"], "refused by a layer behind");
    assert_eq!(run("c").1, [""; 0], "refused by a layer before");
    // A caller that leaves before there is an answer.
    let mut left = call("a");
    assert!(matches!(chain.request(&mut left), Flow::Next));
    drop(left);
    assert_eq!(diary.take().last().unwrap(), "ended");
}
