use bytes::Bytes;

use super::*;

fn message(method: &str, params: Option<&str>) -> Message {
    let params = params.map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
    Message::parse(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#).into()).unwrap()
}

#[test]
fn the_table_is_sorted_and_every_method_is_found() {
    assert!(Method::ALL.is_sorted_by(|one, next| one.name < next.name));
    for method in Method::ALL {
        assert_eq!(Method::named(method.name), Some(method));
        assert_eq!(method.name.starts_with("notifications/"), method.form == Form::Notification, "{}", method.name);
    }
    assert_eq!(Method::named("tools"), None);
}

/// A name that a policy evaluates must not be ambiguous.
#[test]
fn every_name_that_is_looked_up_is_checked_by_the_parser() {
    let looked_up = Method::ALL.iter().flat_map(|method| match method.resource {
        Resource::Text(paths) => paths.iter().filter_map(|path| path.first().copied()).collect(),
        Resource::TextOrNumber(name) => vec![name],
        Resource::Sampling => vec!["modelPreferences", "systemPrompt"],
        Resource::Nowhere | Resource::Fixed(_) => Vec::new(),
    });
    for name in looked_up.chain(["arguments"]) {
        let twice = format!(r#"{{"jsonrpc":"2.0","method":"a","params":{{"{}":1}}}}"#, name.to_uppercase());
        assert!(Message::parse(Bytes::from(twice)).is_err(), "{name}");
    }
}

#[test]
fn methods_belong_to_eras() {
    for (name, legacy, modern) in [
        ("initialize", true, false),
        ("ping", true, false),
        ("logging/setLevel", true, false),
        ("resources/subscribe", true, false),
        ("sampling/createMessage", true, false),
        ("tasks/list", true, false),
        ("server/discover", false, true),
        ("subscriptions/listen", false, true),
        ("tasks/update", false, true),
        ("tools/call", true, true),
        ("tasks/get", true, true),
        ("notifications/cancelled", true, true),
    ] {
        let method = Method::named(name).unwrap();
        assert_eq!((method.is_of(Era::Legacy), method.is_of(Era::Modern)), (legacy, modern), "{name}");
    }
}

#[test]
fn methods_have_senders() {
    for (name, from) in [
        ("tools/call", Side::Client),
        ("sampling/createMessage", Side::Server),
        ("notifications/tools/list_changed", Side::Server),
        ("notifications/roots/list_changed", Side::Client),
        ("notifications/progress", Side::Both),
        ("ping", Side::Both),
    ] {
        assert_eq!(Method::named(name).unwrap().from, from, "{name}");
    }
}

#[test]
fn the_resource_that_a_message_concerns() {
    let sixty = format!(r#"{{"systemPrompt":"{}"}}"#, "x".repeat(60));
    let fifty = "x".repeat(50);
    let umlauts = format!(r#"{{"systemPrompt":"x{}"}}"#, "ä".repeat(40));
    let cut = format!("x{}", "ä".repeat(24));
    let escaped = format!(r#"{{"systemPrompt":"\u0078{}"}}"#, "ä".repeat(40));
    let cases: &[(&str, &str, &str)] = &[
        ("tools/call", r#"{"name":"echo","arguments":{}}"#, "echo"),
        ("tools/call", r#"{"arguments":{},"name":"e\u0063h\/o"}"#, "ech/o"),
        ("tools/call", r#"{"name":""}"#, ""),
        ("tools/call", r#"{"name":7}"#, ""),
        ("tools/call", r#"{"name":null}"#, ""),
        ("tools/call", r#"{"name":"\ud800"}"#, ""),
        ("tools/call", r#"{"uri":"x"}"#, ""),
        ("tools/call", r"{}", ""),
        ("tools/call", r#"["name"]"#, ""),
        ("tools/call", "null", ""),
        ("tools\\/call", r#"{"name":"echo"}"#, "echo"),
        ("prompts/get", r#"{"name":"greet"}"#, "greet"),
        ("prompts/get", r"{}", ""),
        ("resources/read", r#"{"uri":"file:\/\/\/a"}"#, "file:///a"),
        ("resources/read", r#"{"name":"x"}"#, ""),
        ("resources/subscribe", r#"{"uri":"file:///a"}"#, "file:///a"),
        ("resources/unsubscribe", r#"{"uri":"file:///a"}"#, "file:///a"),
        ("tools/list", r#"{"cursor":"c"}"#, "c"),
        ("tools/list", r#"{"cursor":""}"#, ""),
        ("tools/list", r#"{"cursor":1}"#, ""),
        ("tools/list", r"{}", ""),
        ("prompts/list", r#"{"cursor":"c"}"#, "c"),
        ("resources/list", r#"{"cursor":"c"}"#, "c"),
        ("resources/templates/list", r#"{"cursor":"c"}"#, "c"),
        ("roots/list", r#"{"cursor":"c"}"#, "c"),
        ("tasks/list", r#"{"cursor":"c"}"#, "c"),
        ("initialize", r#"{"clientInfo":{"name":"client","version":"1"}}"#, "client"),
        ("initialize", r#"{"clientInfo":"client"}"#, ""),
        ("initialize", r#"{"clientInfo":{"version":"1"}}"#, ""),
        ("initialize", r"{}", ""),
        ("logging/setLevel", r#"{"level":"debug"}"#, "debug"),
        ("logging/setLevel", r#"{"level":7}"#, ""),
        ("completion/complete", r#"{"ref":{"type":"ref/prompt","name":"p"}}"#, "p"),
        ("completion/complete", r#"{"ref":{"type":"ref/resource","uri":"file:///{x}"}}"#, "file:///{x}"),
        ("completion/complete", r#"{"ref":{"uri":"u","name":"p"}}"#, "p"),
        ("completion/complete", r#"{"ref":"old"}"#, "old"),
        ("completion/complete", r#"{"ref":{"type":"ref/prompt"}}"#, ""),
        ("completion/complete", r#"{"ref":7}"#, ""),
        ("elicitation/create", r#"{"message":"your name?"}"#, "your name?"),
        ("elicitation/create", r#"{"message":{}}"#, ""),
        ("sampling/createMessage", r#"{"modelPreferences":{"name":"m","hints":[{"name":"h"}]}}"#, "m"),
        ("sampling/createMessage", r#"{"modelPreferences":{"hints":[{"name":"h"},{"name":"i"}]}}"#, "h"),
        ("sampling/createMessage", r#"{"modelPreferences":{"name":"","hints":[{"name":"h"}]}}"#, "h"),
        ("sampling/createMessage", r#"{"modelPreferences":{"hints":[]},"systemPrompt":"be kind"}"#, "be kind"),
        ("sampling/createMessage", r#"{"modelPreferences":{"hints":["h"]},"systemPrompt":"be kind"}"#, "be kind"),
        ("sampling/createMessage", r#"{"modelPreferences":null,"systemPrompt":"be kind"}"#, "be kind"),
        ("sampling/createMessage", &sixty, &fifty),
        ("sampling/createMessage", &umlauts, &cut),
        ("sampling/createMessage", &escaped, &cut),
        ("sampling/createMessage", r#"{"messages":[]}"#, ""),
        ("notifications/progress", r#"{"progressToken":"t"}"#, "t"),
        ("notifications/progress", r#"{"progressToken":12345678901234567890}"#, "12345678901234567890"),
        ("notifications/progress", r#"{"progressToken":[]}"#, ""),
        ("notifications/cancelled", r#"{"requestId":"r"}"#, "r"),
        ("notifications/cancelled", r#"{"requestId":42}"#, "42"),
        ("notifications/cancelled", r"{}", ""),
        ("tasks/get", r#"{"taskId":"t"}"#, "t"),
        ("tasks/get", r#"{"taskId":7}"#, "7"),
        ("tasks/cancel", r#"{"taskId":"t"}"#, "t"),
        ("tasks/result", r#"{"taskId":"t"}"#, "t"),
        ("tasks/update", r#"{"taskId":"t"}"#, "t"),
        ("notifications/tasks", r#"{"taskId":"t"}"#, "t"),
        ("notifications/tasks/status", r#"{"taskId":"t","status":"working"}"#, "t"),
        ("notifications/elicitation/complete", r#"{"elicitationId":"e"}"#, "e"),
        ("notifications/message", r#"{"method":"m","level":"info"}"#, "m"),
        ("notifications/message", r#"{"level":"info"}"#, ""),
        ("ping", r"{}", "ping"),
        ("notifications/initialized", r"{}", "initialized"),
        ("notifications/roots/list_changed", r"{}", "roots"),
        ("notifications/prompts/list_changed", r"{}", "prompts"),
        ("notifications/resources/list_changed", r"{}", "resources"),
        ("notifications/resources/updated", r#"{"uri":"file:///a"}"#, "resources"),
        ("notifications/tools/list_changed", r"{}", "tools"),
        ("server/discover", r#"{"_meta":{}}"#, "discover"),
        ("subscriptions/listen", r#"{"notifications":{}}"#, ""),
        ("unknown/method", r#"{"name":"x"}"#, ""),
    ];
    for (method, params, expected) in cases {
        let message = message(method, Some(params));
        assert_eq!(resource(&message).unwrap_or_default(), *expected, "{method} {params}");
    }
}

#[test]
fn without_params_only_what_is_fixed_is_known() {
    for method in Method::ALL {
        let fixed = match method.resource {
            Resource::Fixed(name) => Some(Cow::Borrowed(name)),
            _ => None,
        };
        assert_eq!(resource(&message(method.name, None)), fixed, "{}", method.name);
    }
}

#[test]
fn responses_concern_no_resource() {
    let response = Message::parse(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{"name":"x"}}"#)).unwrap();
    assert_eq!((resource(&response), arguments(&response)), (None, None));
}

#[test]
fn arguments_are_objects() {
    for (method, params, expected) in [
        ("tools/call", r#"{"name":"a","arguments":{"x":1.0}}"#, Some(r#"{"x":1.0}"#)),
        ("tools/call", r#"{"name":"a","arguments":null}"#, None),
        ("tools/call", r#"{"name":"a","arguments":[1]}"#, None),
        ("tools/call", r#"{"name":"a"}"#, None),
        ("prompts/get", r#"{"name":"a","arguments":{"x":"1"}}"#, Some(r#"{"x":"1"}"#)),
        ("initialize", r#"{"clientInfo":{}}"#, Some(r#"{"clientInfo":{}}"#)),
        ("completion/complete", r#"{"ref":"x"}"#, Some(r#"{"ref":"x"}"#)),
        ("resources/read", r#"{"uri":"x","arguments":{"y":1}}"#, None),
        ("tools/list", r#"{"arguments":{"y":1}}"#, None),
        ("elicitation/create", "[1]", None),
        ("unknown", r#"{"arguments":{"y":1}}"#, None),
    ] {
        assert_eq!(arguments(&message(method, Some(params))), expected.map(str::as_bytes), "{method} {params}");
    }
}
