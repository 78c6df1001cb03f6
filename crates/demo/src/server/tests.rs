use super::*;

fn server() -> Server {
    Server::new(Surroundings {
        now: || "2026-03-01T22:30:00Z".parse().unwrap(),
        uuid: || "67e55044-10b1-426f-9247-bb680e5fe0c8".parse().unwrap(),
    })
}

fn ask(message: &Value) -> Value {
    serde_json::from_slice(&server().answer(message.to_string().as_bytes()).expect("an answer")).unwrap()
}

fn legacy(method: &str, params: &Value) -> Value {
    let answer = ask(&json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params }));
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("a")));
    answer
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"] = meta();
    legacy(method, &params)
}

#[test]
fn the_handshake_agrees_on_a_version_that_has_one() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let result = &legacy("initialize", &json!({ "protocolVersion": version, "capabilities": {} }))["result"];
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "skep-demo");
        assert_eq!(result["capabilities"], json!({ "tools": {}, "resources": {}, "prompts": {} }));
    }
    for unknown in ["2026-07-28", "1900-01-01", ""] {
        let result = &legacy("initialize", &json!({ "protocolVersion": unknown }))["result"];
        assert_eq!(result["protocolVersion"], "2025-11-25", "{unknown}");
    }
    assert_eq!(legacy("initialize", &json!({}))["error"]["code"], -32602);
}

#[test]
fn legacy_results_have_nothing_modern() {
    assert_eq!(legacy("ping", &json!({}))["result"], json!({}));
    assert_eq!(ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }))["result"], json!({}));
    let listed = &legacy("tools/list", &json!({ "cursor": "whatever" }))["result"];
    let members: Vec<&String> = listed.as_object().unwrap().keys().collect();
    assert_eq!(members, ["tools"]);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 5);
    assert_eq!(legacy("resources/templates/list", &json!({}))["result"], json!({ "resourceTemplates": [] }));
}

#[test]
fn a_tool_is_called_in_either_era() {
    let call = json!({ "name": "calculate", "arguments": { "expression": "6 * 7" } });
    let expected = json!({
        "content": [{ "type": "text", "text": "{\"result\":42}" }], "structuredContent": { "result": 42 }, "isError": false,
    });
    assert_eq!(legacy("tools/call", &call)["result"], expected);
    let result = &modern("tools/call", call)["result"];
    assert_eq!(result["structuredContent"], json!({ "result": 42 }));
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "skep-demo");
    assert_eq!(result.get("ttlMs"), None);
}

#[test]
fn an_error_of_a_tool_is_a_result_and_any_other_an_error() {
    let result = &legacy("tools/call", &json!({ "name": "calculate", "arguments": { "expression": "1 /" } }))["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(result["content"][0]["text"], "the expression ends too early");
    assert_eq!(legacy("tools/call", &json!({ "name": "time" }))["result"]["isError"], false);
    for (params, words) in [
        (json!({ "name": "shell" }), "no tool `shell`"),
        (json!({ "name": 1 }), "`name` must be a string"),
        (json!({}), "`name` must be a string"),
        (json!({ "name": "time", "arguments": [] }), "`arguments` must be an object"),
    ] {
        let error = &legacy("tools/call", &params)["error"];
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
}

#[test]
fn the_resource_can_be_read_and_others_do_not_exist() {
    let uri = legacy("resources/list", &json!({}))["result"]["resources"][0]["uri"].clone();
    let read = &legacy("resources/read", &json!({ "uri": uri }))["result"]["contents"][0];
    assert_eq!((&read["uri"], &read["mimeType"]), (&uri, &json!("text/markdown")));
    assert!(read["text"].as_str().unwrap().contains("`calculate`"));
    let missing = json!({ "uri": "file:///etc/passwd" });
    let error = &legacy("resources/read", &missing)["error"];
    assert_eq!((&error["code"], &error["data"]), (&json!(-32002), &missing));
    assert_eq!(modern("resources/read", missing)["error"]["code"], -32602);
    assert_eq!(modern("resources/read", json!({ "uri": uri }))["result"]["cacheScope"], "public");
}

#[test]
fn the_prompt_is_filled_in() {
    assert_eq!(legacy("prompts/list", &json!({}))["result"]["prompts"][0]["name"], "use_tools");
    let got = &legacy("prompts/get", &json!({ "name": "use_tools", "arguments": { "task": "add 1" } }))["result"];
    assert_eq!(got["messages"][0]["role"], "user");
    assert!(got["messages"][0]["content"]["text"].as_str().unwrap().ends_with("Task: add 1"));
    for params in [
        json!({ "name": "other" }),
        json!({ "name": "use_tools" }),
        json!({ "name": "use_tools", "arguments": { "task": " " } }),
        json!({ "name": "use_tools", "arguments": 1 }),
    ] {
        assert_eq!(legacy("prompts/get", &params)["error"]["code"], -32602);
    }
    let result = &modern("prompts/get", json!({ "name": "use_tools", "arguments": { "task": "t" } }))["result"];
    assert_eq!((&result["resultType"], result.get("ttlMs")), (&json!("complete"), None));
}

#[test]
fn a_modern_client_discovers_and_keeps_what_it_reads() {
    let result = &modern("server/discover", json!({}))["result"];
    let versions = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    assert_eq!(result["supportedVersions"], versions);
    assert_eq!(result["resultType"], "complete");
    for method in ["server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
        let result = &modern(method, json!({}))["result"];
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(3_600_000), &json!("public")), "{method}");
    }
}

#[test]
fn a_modern_request_is_modern_in_every_respect() {
    let with = |meta: Value| legacy("tools/list", &json!({ "_meta": meta }))["error"].clone();
    let key = |name: &str| format!("io.modelcontextprotocol/{name}");
    let error = with(json!({ key("protocolVersion"): "2027-01-01", key("clientCapabilities"): {} }));
    assert_eq!((&error["code"], &error["data"]["requested"]), (&json!(-32022), &json!("2027-01-01")));
    assert_eq!(error["data"]["supported"].as_array().unwrap().len(), 5);
    assert_eq!(with(json!({ key("clientCapabilities"): {} }))["code"], -32602);
    assert_eq!(with(json!({ key("protocolVersion"): "2026-07-28" }))["code"], -32602);
    assert_eq!(with(json!({ key("protocolVersion"): "2026-07-28", key("clientCapabilities"): [] }))["code"], -32021);
}

#[test]
fn methods_belong_to_their_era() {
    for method in ["ping", "logging/setLevel", "completion/complete", "nonsense"] {
        assert_eq!(modern(method, json!({}))["error"]["code"], -32601, "{method}");
    }
    for method in ["server/discover", "logging/setLevel", "nonsense"] {
        assert_eq!(legacy(method, &json!({}))["error"]["code"], -32601, "{method}");
    }
}

#[test]
fn invalid_lines_are_rejected_or_ignored() {
    let text = |line: &str| server().answer(line.as_bytes()).map(|answer| String::from_utf8(answer.to_vec()).unwrap());
    for (line, code) in [
        ("{", "-32700"),
        ("nonsense", "-32700"),
        ("[]", "-32600"),
        ("{}", "-32600"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "-32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, "-32602"),
    ] {
        assert!(text(line).unwrap().contains(code), "{line}: {:?}", text(line));
    }
    for line in [
        "",
        "  \r",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"nonsense"}"#,
    ] {
        assert_eq!(text(line), None, "{line}");
    }
    assert_eq!(
        text("{\"jsonrpc\":\"2.0\",\"id\":1.0,\"method\":\"ping\"}\r").unwrap(),
        r#"{"id":1.0,"jsonrpc":"2.0","result":{}}"#
    );
}
