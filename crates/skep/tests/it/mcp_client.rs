//! `skep tools` and `skep call`: a client of servers of both eras and both transports.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::proxy::Proxy;
use crate::skep;

#[test]
fn tools_of_the_demo_are_listed_and_called_over_both_transports() {
    for (mode, path) in [("streamable-http", "mcp"), ("sse", "sse")] {
        let proxy = Proxy::start_in(mode);
        let url = format!("http://{}/{path}", proxy.address);
        let listed = skep(&["tools", &url]);
        let line = listed.succeeded().lines().find(|line| line.starts_with("calculate\t")).unwrap().to_owned();
        assert!(line.starts_with("calculate\texpression\t"), "{line}");
        let tools: Value = serde_json::from_str(skep(&["tools", &url, "-o", "json"]).succeeded()).unwrap();
        assert!(tools.as_array().unwrap().iter().any(|tool| tool["inputSchema"].is_object()));
        let called = skep(&["call", &url, "calculate", "--arg", "expression=2 ^ 10"]);
        assert!(called.succeeded().contains("1024"), "{}", called.out);
        let called = skep(&["call", &url, "calculate", "--json", r#"{"expression":"1+1"}"#, "-o", "json"]);
        let result: Value = serde_json::from_str(called.succeeded()).unwrap();
        assert_eq!(result["structuredContent"]["result"], 2, "{result}");
        let failed = skep(&["call", &url, "calculate", "--arg", "expression=1/"]);
        failed.refused(1, &["calculate"]);
        let failed = skep(&["call", &url, "calculate", "--arg", "expression=1/", "-o", "json"]);
        assert_eq!((failed.code, &serde_json::from_str::<Value>(&failed.out).unwrap()["isError"]), (1, &json!(true)));
        skep(&["call", &url, "no-such-tool"]).refused(1, &["no-such-tool"]);
    }
}

#[test]
fn a_server_of_2026_07_28_is_called_without_a_session_and_with_the_given_headers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for stream in listener.incoming().take(4) {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                length = line
                    .to_lowercase()
                    .strip_prefix("content-length: ")
                    .map_or(length, |text| text.trim().parse().unwrap());
                head.push_str(&line.to_lowercase());
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let request: Value = serde_json::from_slice(&body).unwrap();
            let result = match request["method"].as_str().unwrap() {
                "server/discover" => json!({ "supportedVersions": ["2026-07-28"], "resultType": "complete" }),
                // It is asked whether it serves earlier versions as well.
                "initialize" => Value::Null,
                "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": {} }] }),
                _ => json!({ "content": [{ "type": "text", "text": "hi" }] }),
            };
            let mut response = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            if result.is_null() {
                let error = json!({ "code": -32601, "message": "Method not found" });
                response = json!({ "jsonrpc": "2.0", "id": request["id"], "error": error });
            }
            let response = response.to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{response}",
                response.len()
            );
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            heads.push(head);
        }
        heads
    });
    assert_eq!(skep(&["call", &url, "t", "--header", "X-Key: k"]).succeeded(), "hi\n");
    let heads = server.join().unwrap();
    assert!(heads.iter().all(|head| head.contains("x-key: k")));
    // All but `initialize`, which is of earlier versions.
    let modern: Vec<&String> = heads.iter().filter(|head| head.contains("mcp-protocol-version: 2026-07-28")).collect();
    assert_eq!(modern.len(), 3, "{heads:?}");
    assert!(modern[2].contains("mcp-method: tools/call") && modern[2].contains("mcp-name: t"), "{}", modern[2]);
}

#[test]
fn a_server_that_cannot_be_called_is_reported_in_one_line() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    skep(&["tools", &format!("http://{nobody}/mcp")]).refused(1, &[&nobody.to_string(), "connection refused"]);
    skep(&["tools", "localhost"]).refused(1, &["localhost", "http://"]);
    skep(&["call", "http://localhost/mcp"]).refused(2, &["TOOL"]);
    skep(&["call", "http://localhost/mcp", "t", "--arg", "a=1", "--json", "{}"]).refused(2, &["--json"]);
    skep(&["call", "http://localhost/mcp", "t", "--arg", "a"]).refused(1, &["NAME=VALUE"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    skep(&["tools", &url, "--timeout", "1"]).refused(1, &["1s", "--timeout"]);
    let url = without_token();
    skep(&["tools", &url, "--timeout", "20"]).refused(1, &[&url, "401"]);
    skep(&["call", &url, "t", "--header", "Authorization: Bearer x", "--timeout", "20"]).refused(1, &[&url, "401"]);
}

/// The URL of a server that takes no token.
fn without_token() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                let line = line.to_lowercase();
                length = line.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let answer = "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}
