use std::sync::Mutex;

use http::{HeaderMap, StatusCode};
use skep_mcp::Message;
use skep_runconfig::middleware::{ORDER, list, list_requested as built};
use skep_runconfig::run_config::{MiddlewareConfig, RunConfig};

use super::*;
use crate::chain::reply::{ReplyMiddleware, ReplyStep};
use crate::exchange::Content;
use crate::observe::{Observation, Observer};
use crate::unsupported::UNSUPPORTED;

fn config(json: &str) -> RunConfig {
    RunConfig::from_slice(json.as_bytes()).unwrap()
}

/// The chain of a proxy whose port is not known.
fn chain(config: &RunConfig) -> Result<Chain, ChainError> {
    Chain::new(config, &Context::default())
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
    let planned = list(&all);
    let built = built(&all);
    let in_both: Vec<_> = planned.iter().filter(|one| built.contains(one)).collect();
    assert_eq!(in_both, built.iter().collect::<Vec<_>>());
    // What the planner lists beyond that, this proxy has in any case.
    let rest: Vec<_> = planned.iter().filter(|one| !built.contains(one)).map(|one| one.kind.as_str()).collect();
    assert_eq!(rest, ["bodylimit", "header-forward", "recovery"]);
}

#[test]
fn guards_that_are_not_there_stop_the_start_and_unknown_ones_are_named() {
    for (kind, parameters, part) in [
        ("auth", r#"{"oidc_config":{}}"#, "either issuer or JWKS URL must be provided"),
        (
            "auth",
            r#"{"oidc_config":{"Issuer":"https://a","CACertPath":"/no/such/file"}}"#,
            "cannot read `/no/such/file`",
        ),
        ("authorization", "{}", "version is missing"),
        ("authorization", r#"{"config_path":"/a/../b"}"#, "may not contain `..`"),
        (
            "authorization",
            r#"{"config_data":{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit("]}}}"#,
            "policies[0]",
        ),
        ("ratelimit", "{}", "there is no limit"),
        (
            "ratelimit",
            r#"{"config":{"shared":{"maxTokens":0,"refillPeriod":"1m"}}}"#,
            "shared: a bucket needs at least one token",
        ),
        (
            "ratelimit",
            r#"{"config":{"tools":[{"name":"a","perUser":{"maxTokens":1,"refillPeriod":"soon"}}]}}"#,
            "tools `a`: perUser: refillPeriod",
        ),
        (
            "ratelimit",
            r#"{"config":{"failurePolicy":"open","shared":{"maxTokens":1,"refillPeriod":"1m"}}}"#,
            "use `fail` or `ignore`",
        ),
        (
            "ratelimit",
            r#"{"redis_addr":"http://a","config":{"shared":{"maxTokens":1,"refillPeriod":"1m"}}}"#,
            "not the address of a Redis server",
        ),
        ("validating-webhook", "{}", "there is no webhook"),
        ("mutating-webhook", r#"{"webhooks":[{"name":"a","url":"http://a","failure_policy":"fail"}]}"#, "plain HTTP"),
        (
            "mutating-webhook",
            r#"{"webhooks":[{"name":"a","url":"https://a","failure_policy":"fail","hmac_secret_ref":"/no/such/file"}]}"#,
            "webhook `a`: cannot read `/no/such/file`",
        ),
        (
            "validating-webhook",
            r#"{"webhooks":[{"name":"a","url":"https://a","failure_policy":"fail","tls_config":{"ca_bundle_path":"/no/ca"}}]}"#,
            "webhook `a`: cannot read `/no/ca`",
        ),
        ("tokenexchange", "{}", "token_exchange_config is missing"),
        ("awssts", r#"{"aws_sts_config":{"region":"eu-central-1"}}"#, "target_url is missing"),
        ("awssts", r#"{"aws_sts_config":{"region":"eu-central-1"},"target_url":"https://a"}"#, "no client gets a role"),
        ("awssts", r#"{"aws_sts_config":{"region":"eu/../x"},"target_url":"https://a"}"#, "region `eu/../x`"),
        ("upstreamswap", "{}", "`upstreamswap` is not in this version"),
        ("nonsense", "{}", "unsupported middleware type: nonsense"),
        ("tool-filter", "{}", "neither a tool to show nor one to rename"),
        ("header-forward", r#"{"add_headers":{"Host":"a"}}"#, "`Host` cannot be set"),
        ("bodylimit", r#"{"max_bytes":"many"}"#, "`max_bytes`"),
    ] {
        let listed = format!(r#"{{"middleware_configs":[{{"type":"{kind}","parameters":{parameters}}}]}}"#);
        let message = chain(&config(&listed)).unwrap_err().to_string();
        assert!(message.contains(part), "{kind}: {message}");
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
        let chain = chain(&config(&format!(r#"{{"host":"0.0.0.0","middleware_configs":{listed}}}"#))).unwrap();
        assert_eq!(chain.body_limit(), limit, "{listed}");
    }
}

/// The middleware, outermost first, by the names of its types.
fn names(json: &str) -> Vec<String> {
    let context = Context { port: 8080, ..Context::default() };
    let chain = Chain::new(&config(json), &context).unwrap();
    let name = |one: &Placed| format!("{one:?}").split(['(', ' ', '{']).next().unwrap_or_default().to_owned();
    chain.middleware.iter().map(name).collect()
}

#[test]
fn origins_are_checked_first_and_headers_for_the_server_are_added_last() {
    let all =
        r#""allowed_origins":["http://a"],"tools_filter":["a"],"header_forward":{"add_plaintext_headers":{"x-a":"1"}}"#;
    let additional = r#""additional_middleware_configs":[{"type":"strip-auth","parameters":{}}]"#;
    let remote = r#""remote_url":"http://b""#;
    assert_eq!(
        names(&format!("{{{all},{additional},{remote}}}")),
        ["Origins", "LocalUser", "ListFilter", "CallFilter", "Parser", "StripAuth", "HeaderForward"]
    );
    assert_eq!(
        names(&format!("{{{all},{additional}}}")),
        ["Origins", "LocalUser", "ListFilter", "CallFilter", "Parser", "StripAuth"],
        "only a remote server gets headers"
    );
    // A list that is there is taken as it is, twice if it says so.
    let listed = r#""middleware_configs":[{"type":"mcp-parser","parameters":{}},{"type":"auth","parameters":{}},
        {"type":"mcp-parser","parameters":{}},{"type":"bodylimit","parameters":{"max_bytes":9}},{"type":"recovery","parameters":null}]"#;
    let unfiltered = all.replace(r#""tools_filter":["a"],"#, "");
    assert_eq!(
        names(&format!("{{{unfiltered},{remote},{listed}}}")),
        ["Origins", "Parser", "LocalUser", "Parser", "BodyLimit", "HeaderForward"]
    );
    let own = r#""middleware_configs":[{"type":"header-forward","parameters":{"add_headers":{"x-a":"1"}}}]"#;
    assert_eq!(names(&format!("{{{unfiltered},{remote},{own}}}")), ["Origins", "HeaderForward"]);
    assert_eq!(
        names(r#"{"host":"0.0.0.0"}"#),
        ["LocalUser", "Parser"],
        "without a loopback address or a list, any origin may call"
    );
}

#[test]
fn what_the_members_of_a_run_config_ask_for_and_is_not_there_stops_the_start() {
    for member in [
        r#""embedded_auth_server_config":{"upstreams":[{"type":"oidc"},{"type":"oidc"}]}"#,
        r#""embedded_auth_server_config":{"disable_upstream_token_injection":true}"#,
        r#""upstream_swap_config":{"provider_name":"a"},"embedded_auth_server_config":{}"#,
    ] {
        let built = chain(&config(&format!(r#"{{"host":"0.0.0.0",{member}}}"#)));
        assert!(matches!(built, Err(ChainError::UnsupportedMiddleware { .. })), "{member}");
    }
}

/// The original ignores what is not in the list.
#[test]
fn a_list_without_a_guard_that_other_members_ask_for_stops_the_start() {
    let policies =
        r#"{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal, action, resource);"]}}"#;
    let webhooks = r#"[{"name":"a","url":"https://a","failure_policy":"fail"}]"#;
    let listed = |entry: &str| format!(r#""middleware_configs":[{{"type":"mcp-parser","parameters":{{}}}}{entry}]"#);
    let limits = r#"{"shared":{"maxTokens":1,"refillPeriod":"1m"}}"#;
    for (kind, member, parameters) in [
        (
            "auth",
            r#""oidc_config":{"issuer":"https://a"}"#.to_owned(),
            r#"{"oidc_config":{"issuer":"https://a"}}"#.to_owned(),
        ),
        ("authorization", format!(r#""authz_config":{policies}"#), format!(r#"{{"config_data":{policies}}}"#)),
        ("mutating-webhook", format!(r#""mutating_webhooks":{webhooks}"#), format!(r#"{{"webhooks":{webhooks}}}"#)),
        ("validating-webhook", format!(r#""validating_webhooks":{webhooks}"#), format!(r#"{{"webhooks":{webhooks}}}"#)),
        ("ratelimit", format!(r#""rate_limit_config":{limits}"#), format!(r#"{{"config":{limits}}}"#)),
        ("audit", r#""audit_config":{}"#.to_owned(), "{}".to_owned()),
    ] {
        let alone = format!(r#"{{"host":"0.0.0.0",{member},{}}}"#, listed(""));
        let refused = chain(&config(&alone)).unwrap_err();
        assert!(
            matches!(&refused, ChainError::UnlistedMiddleware { kind: missing } if missing == kind),
            "{kind}: {refused}"
        );
        let both = format!(
            r#"{{"host":"0.0.0.0",{member},{}}}"#,
            listed(&format!(r#",{{"type":"{kind}","parameters":{parameters}}}"#))
        );
        assert!(chain(&config(&both)).is_ok(), "{kind}");
    }
    // Every client would be the local user.
    let local =
        format!(r#"{{"oidc_config":{{"issuer":"https://a"}},{}}}"#, listed(r#",{"type":"auth","parameters":{}}"#));
    assert!(matches!(chain(&config(&local)), Err(ChainError::UnlistedMiddleware { .. })));
    let additional =
        format!(r#"{{"additional_middleware_configs":[{{"type":"strip-auth","parameters":{{}}}}],{}}}"#, listed(""));
    assert!(matches!(chain(&config(&additional)), Err(ChainError::UnlistedMiddleware { .. })));
}

#[test]
fn a_proxy_whose_audit_log_cannot_be_written_does_not_start() {
    let log = r#"{"logFile":"/nonexistent/audit.log"}"#;
    for listed in [
        format!(r#""audit_config":{log}"#),
        format!(r#""middleware_configs":[{{"type":"audit","parameters":{{"config_data":{log}}}}}]"#),
    ] {
        let refused = chain(&config(&format!(r#"{{"host":"0.0.0.0",{listed}}}"#))).unwrap_err().to_string();
        let start = "middleware `audit`: logFile: cannot open `/nonexistent/audit.log` for appending: ";
        assert!(refused.starts_with(start), "{refused}");
    }
    let unknown = r#"{"host":"0.0.0.0","audit_config":{"eventTypes":["x"]}}"#;
    let refused = chain(&config(unknown)).unwrap_err().to_string();
    assert!(refused.starts_with("middleware `audit`: eventTypes[0]: `x` is not an event type"), "{refused}");
}

#[test]
fn the_table_of_what_is_not_supported_is_what_the_chain_refuses() {
    let guards = ["auth", "authorization", "awssts", "obo", "ratelimit", "tokenexchange", "upstreamswap"];
    for kind in guards.into_iter().chain(["mutating-webhook", "validating-webhook", "audit"]) {
        let parameters = match kind {
            "auth" => r#"{"oidc_config":{"issuer":"https://a"}}"#,
            "authorization" => {
                r#"{"config_data":{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal, action, resource);"]}}}"#
            }
            "tokenexchange" => r#"{"token_exchange_config":{"token_url":"https://a"}}"#,
            "awssts" => {
                r#"{"target_url":"https://a","aws_sts_config":{"region":"a","fallback_role_arn":"arn:aws:iam::123456789012:role/r"}}"#
            }
            "mutating-webhook" | "validating-webhook" => {
                r#"{"webhooks":[{"name":"a","url":"https://a","failure_policy":"fail"}]}"#
            }
            "ratelimit" => r#"{"config":{"shared":{"maxTokens":1,"refillPeriod":"1m0s"}}}"#,
            _ => "{}",
        };
        let listed = format!(r#"{{"middleware_configs":[{{"type":"{kind}","parameters":{parameters}}}]}}"#);
        let is_refused = chain(&config(&listed)).is_err();
        let is_listed = UNSUPPORTED.contains(&Feature::of_middleware(kind).unwrap());
        assert_eq!(is_refused, is_listed, "{kind}: the operator would plan otherwise than the proxy runs");
    }
}

/// A row that only the planner knows would stop every proxy that is given its list.
#[test]
fn every_row_of_the_order_is_built_or_named_as_unsupported() {
    for row in ORDER {
        let listed = format!(r#"{{"middleware_configs":[{{"type":"{}","parameters":{{}}}}]}}"#, row.kind);
        let built = chain(&config(&listed));
        assert!(!matches!(built, Err(ChainError::UnknownMiddleware(_))), "{}: the proxy has no row for it", row.kind);
    }
}

/// Whether it is listed, or requested by a member of the RunConfig: a signed request cannot be translated for a server of the other era.
#[test]
fn a_chain_signs_requests_if_one_of_its_middleware_does() {
    let sts = r#"{"region":"a","fallback_role_arn":"arn:aws:iam::123456789012:role/r"}"#;
    let parameters = format!(r#"{{"target_url":"https://a","aws_sts_config":{sts}}}"#);
    let listed = format!(r#"{{"middleware_configs":[{{"type":"awssts","parameters":{parameters}}}]}}"#);
    let requested = format!(r#"{{"remote_url":"https://a","aws_sts_config":{sts}}}"#);
    for (config_of, signs) in [(listed.as_str(), true), (&requested, true), ("{}", false)] {
        assert_eq!(chain(&config(config_of)).unwrap().signs_requests(), signs, "{config_of}");
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
    Exchange::new(Head::new(request.into_parts().0, peer), content)
}

/// Puts a request through the phases before the server.
async fn request(chain: &Chain, exchange: &mut Exchange) -> Flow {
    match chain.head(&mut exchange.head).await {
        Flow::Next => chain.message(exchange).await,
        denied @ Flow::Answer(_) => denied,
    }
}

#[tokio::test]
async fn a_call_is_checked_as_it_goes_to_the_server_and_its_headers_say_the_same() {
    let renames = r#"{"type":"tool-call-filter","parameters":{"tools_override":{"secret":{"name":"harmless"}}}}"#;
    let hides = r#"{"type":"tool-call-filter","parameters":{"filter_tools":["harmless"]}}"#;
    let chain =
        |listed: &str| chain(&config(&format!(r#"{{"host":"0.0.0.0","middleware_configs":[{listed}]}}"#))).unwrap();
    let mut passed = call("harmless");
    assert!(matches!(request(&chain(renames), &mut passed).await, Flow::Next));
    assert!(passed.content.bytes().windows(8).any(|part| part == b"\"secret\""));
    assert_eq!(passed.head.headers["mcp-name"], "secret", "a server of today compares them");
    // The filter saw a name that it lets pass, before a later middleware made another one of it.
    let both = chain(&format!("{hides},{renames}"));
    let Flow::Answer(answer) = request(&both, &mut call("harmless")).await else {
        panic!("what the filter hides was called");
    };
    assert_eq!(answer.status(), StatusCode::OK, "as an error of the protocol");
    assert!(matches!(request(&chain(hides), &mut call("harmless")).await, Flow::Next));
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
    fn begin(self: Arc<Self>, head: &mut Head) -> Box<dyn Observation> {
        self.note(format!("began, called by {}", head.identity().map_or("no identity", |_| "an identity")));
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

#[tokio::test]
async fn who_observes_sees_the_calls_that_come_to_its_place_until_their_answers_have_ended() {
    let listed = r#"[{"type":"tool-call-filter","parameters":{"filter_tools":["a","b","x"]}},
        {"type":"telemetry","parameters":{}},{"type":"auth","parameters":{}},
        {"type":"tool-call-filter","parameters":{"filter_tools":["a","c"],"tools_override":{"x":{"name":"a"}}}}]"#;
    let diary = Arc::new(Diary::default());
    let context = Context { telemetry: vec![diary.clone()], ..Context::default() };
    let config = config(&format!(r#"{{"host":"0.0.0.0","middleware_configs":{listed}}}"#));
    let chain = Chain::new(&config, &context).unwrap();
    let run = async |name: &str| {
        let mut exchange = call(name);
        let answer = match request(&chain, &mut exchange).await {
            Flow::Answer(answer) => answer,
            // Its end is far.
            Flow::Next => Response::new(Body::channel(1).1),
        };
        let answer = exchange.observed(answer);
        drop(exchange);
        (answer, diary.take())
    };
    let (answer, seen) = run("a").await;
    assert_eq!(seen, ["began, called by an identity", "x 200 OK"], "as it went to the server, and not yet ended");
    drop(answer);
    assert_eq!(diary.take(), ["ended"]);
    assert_eq!(
        run("b").await.1,
        ["began, called by an identity", "b 200 OK", "ended"],
        "refused by a later middleware"
    );
    assert_eq!(run("c").await.1, [""; 0], "refused by an earlier middleware");
    // A client that leaves before there is an answer.
    let mut left = call("a");
    assert!(matches!(request(&chain, &mut left).await, Flow::Next));
    drop(left);
    assert_eq!(diary.take().last().unwrap(), "ended");
}

/// A middleware as trivial as one can be: this, and its row of the table, is all that a new one needs. It counts calls in a header, and
/// waits as one does that asks another service.
#[derive(Debug)]
struct Stamp;

/// Its part in the reply phase.
#[derive(Debug)]
struct Stamped;

#[expect(clippy::unnecessary_wraps, reason = "rows of the table have one type")]
pub(crate) fn build_stamp(_: &MiddlewareConfig, _: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    Ok(Some(Arc::new(Stamp)))
}

impl Middleware for Stamp {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        Step::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            if head.headers.contains_key("x-denied") {
                return Flow::Answer(Response::new(Body::empty()));
            }
            head.watch_replies(Arc::new(Stamped));
            Flow::Next
        }))
    }

    fn message<'a>(&'a self, exchange: &'a mut Exchange, pass: Pass) -> Step<'a> {
        exchange
            .head
            .headers
            .append("x-stamp", HeaderValue::from_static(if pass == Pass::Incoming { "in" } else { "out" }));
        Step::NEXT
    }

    fn enforces(&self) -> bool {
        true
    }
}

impl ReplyMiddleware for Stamped {
    fn reply(&self, reply: Message) -> ReplyStep<'_> {
        ReplyStep::Pending(Box::pin(async move {
            tokio::task::yield_now().await;
            let edit = skep_mcp::Edit::set(&["id"], skep_mcp::Raw::string("stamped"));
            Ok(skep_mcp::splice::apply(&reply, &[edit]).unwrap())
        }))
    }
}

#[tokio::test]
async fn a_new_middleware_is_one_file_and_one_row_and_takes_part_in_every_phase() {
    let renames = r#"{"type":"tool-call-filter","parameters":{"tools_override":{"secret":{"name":"harmless"}}}}"#;
    let listed =
        format!(r#"{{"host":"0.0.0.0","middleware_configs":[{{"type":"test-stamp","parameters":{{}}}},{renames}]}}"#);
    let chain = chain(&config(&listed)).unwrap();
    let mut passed = call("harmless");
    assert!(matches!(request(&chain, &mut passed).await, Flow::Next));
    let stamps: Vec<_> = passed.head.headers.get_all("x-stamp").iter().collect();
    assert_eq!(stamps, ["in", "out"], "it enforces, so it sees what a later middleware made of the message");
    let reply = Message::parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into()).unwrap();
    let seen = passed.reply_chain().reply(reply).await.unwrap();
    assert_eq!(seen.id().unwrap().raw(), "\"stamped\"");
    let mut denied = call("harmless");
    denied.head.headers.insert("x-denied", HeaderValue::from_static("1"));
    assert!(matches!(chain.head(&mut denied.head).await, Flow::Answer(_)), "before its body is read");
}
