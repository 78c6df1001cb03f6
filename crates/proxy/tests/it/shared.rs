//! Two proxies of one server that share their sessions in a real Redis.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use skep_net::Body;
use skep_net::drain::Grace;
use skep_proxy::run::{Place, Ports, Running, start};
use skep_proxy::settings::{Overrides, Settings};
use skep_runconfig::RunConfig;
use skep_testkit::{Seen, eventually};

use crate::client::{PATIENCE, TestClient};
use crate::web::{Got, backend};

struct Redis {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Redis {
    async fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let redis = Self { process: spawn(port, &directory)?, port, directory };
        redis.answers().await?;
        Ok(redis)
    }

    async fn answers(&self) -> Result<()> {
        eventually("Redis answers", PATIENCE, || async {
            Ok(match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(_) => Seen::Yes(()),
                Err(error) => Seen::NotYet(error.to_string()),
            })
        })
        .await
    }

    /// What it answers to a command.
    fn say(&self, command: &str) -> Result<String> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port))?);
        stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        let mut first = String::new();
        stream.read_line(&mut first)?;
        let Some(length) = first.strip_prefix('$') else { return Ok(first) };
        let mut answer = vec![0; length.trim().parse()?];
        stream.read_exact(&mut answer)?;
        Ok(String::from_utf8(answer)?)
    }

    /// The commands that it has run since the test made it forget them, but for queries.
    fn commands(&self) -> Result<Vec<String>> {
        let all = self.say("INFO commandstats")?;
        let all = all.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(",usec="));
        let asking = |name: &str| name.starts_with("info:") || name.starts_with("config|resetstat:");
        Ok(all.map(|(command, _)| command.to_owned()).filter(|command| !asking(command)).collect())
    }

    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    async fn restart(&mut self) -> Result<()> {
        self.process = spawn(self.port, &self.directory)?;
        self.answers().await
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

fn spawn(port: u16, directory: &tempfile::TempDir) -> Result<Child> {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start `redis-server`; it comes with Debian's package of that name")
}

fn answer(got: &Got) -> Response<Body> {
    let message: Value = serde_json::from_slice(&got.body).unwrap_or_default();
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "protocolVersion": "2025-06-18" } });
    let mut response = Response::new(Body::full(body.to_string()));
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    if message["method"] == "initialize" {
        response.headers_mut().insert("mcp-session-id", "their-own-name".parse().unwrap());
    }
    response
}

async fn proxy(server: std::net::SocketAddr, redis: u16) -> Result<Running> {
    proxy_of("streamable-http", &format!("http://{server}"), redis).await
}

async fn proxy_of(transport: &str, url: &str, redis: u16) -> Result<Running> {
    proxy_with(json!({ "transport": transport, "remote_url": url }), &Overrides::default(), redis).await
}

/// A proxy in front of a process that answers every request with the same.
async fn proxy_of_process(redis: u16) -> Result<Running> {
    let script = r#"s/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"result":{"protocolVersion":"2025-06-18"}}/p"#;
    let config = json!({ "transport": "stdio", "cmd_args": ["-un", script] });
    proxy_with(config, &Overrides { image: "exec://sed".to_owned(), patch: None }, redis).await
}

async fn proxy_with(mut config: Value, overrides: &Overrides, redis: u16) -> Result<Running> {
    let redis = json!({ "address": format!("127.0.0.1:{redis}"), "key_prefix": "mine:" });
    config["scaling_config"] = json!({ "session_redis": redis });
    (config["name"], config["host"]) = (json!("s"), json!("127.0.0.1"));
    let config = RunConfig::from_slice(config.to_string().as_bytes())?;
    let settings = Settings::new(config, overrides, &BTreeMap::new())?;
    let grace = Grace { linger: Duration::ZERO, finish: Duration::from_secs(1) };
    Ok(start(&settings, &BTreeMap::new(), Place::Machine(Ports::default()), grace).await?)
}

#[tokio::test]
async fn a_session_of_one_proxy_is_known_to_the_other_and_an_outage_is_no_unknown_session() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let mut redis = Redis::start().await?;
    let got = Arc::default();
    let server = backend("127.0.0.1:0".parse()?, Arc::new(answer), Arc::clone(&got)).await?;
    let (one, two) = (proxy(server, redis.port).await?, proxy(server, redis.port).await?);
    let first = TestClient::new(one.address()).initialized().await?;
    assert_eq!(first.session.as_deref(), Some("their-own-name"));
    let mut second = TestClient::new(two.address());
    second.session.clone_from(&first.session);
    for id in 0..5 {
        assert_eq!(second.ask(json!(id), "ping", json!({})).await?.status, StatusCode::OK);
    }
    redis.kill()?;
    let away = second.ask(json!(1), "ping", json!({})).await?;
    assert_eq!((away.status, away.text()), (StatusCode::SERVICE_UNAVAILABLE, "session store unavailable"));
    // Clients without a session do not need it.
    assert_eq!(TestClient::new(one.address()).ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK);
    redis.restart().await?;
    eventually("sessions can be looked up again", PATIENCE, || async {
        let status = second.ask(json!(1), "ping", json!({})).await?.status;
        Ok(if status == StatusCode::NOT_FOUND { Seen::Yes(()) } else { Seen::NotYet(status.to_string()) })
    })
    .await?;
    TestClient::new(one.address()).initialized().await?;
    assert_eq!(second.ask(json!(1), "ping", json!({})).await?.status, StatusCode::OK, "the same name, opened again");
    assert_eq!(second.whole(Method::DELETE, "/mcp", "").await?.status, StatusCode::OK);
    assert_eq!(first.ask(json!(1), "ping", json!({})).await?.status, StatusCode::NOT_FOUND, "gone for both");
    for running in [one, two] {
        assert_eq!(running.end().await.cut, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_call_costs_redis_one_command() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let redis = Redis::start().await?;
    let server = backend("127.0.0.1:0".parse()?, Arc::new(answer), Arc::default()).await?;
    for running in [proxy(server, redis.port).await?, proxy_of_process(redis.port).await?] {
        let caller = TestClient::new(running.address()).initialized().await?;
        redis.say("CONFIG RESETSTAT")?;
        for calls in 1..=3 {
            assert_eq!(caller.ask(json!(calls), "ping", json!({})).await?.status, StatusCode::OK);
            assert_eq!(redis.commands()?, [format!("getex:calls={calls}")]);
        }
        // Clients without a session cost nothing.
        redis.say("CONFIG RESETSTAT")?;
        TestClient::new(running.address()).ask(json!(1), "ping", json!({})).await?;
        assert_eq!(redis.commands()?, [""; 0]);
        running.end().await;
    }
    Ok(())
}

#[tokio::test]
async fn an_outage_while_a_session_is_opened_again_is_no_unknown_session_either() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let redis = Arc::new(Mutex::new(Redis::start().await?));
    let port = redis.lock().unwrap().port;
    // The server forgets its sessions, and Redis goes before they could be re-initialized.
    let says = move |got: &Got| {
        if !String::from_utf8_lossy(&got.body).contains("\"ping\"") {
            return answer(got);
        }
        redis.lock().unwrap().kill().unwrap();
        Response::builder().status(404).body(Body::empty()).unwrap()
    };
    let server = backend("127.0.0.1:0".parse()?, Arc::new(says), Arc::default()).await?;
    let running = proxy(server, port).await?;
    let caller = TestClient::new(running.address()).initialized().await?;
    let away = caller.ask(json!(1), "ping", json!({})).await?;
    assert_eq!((away.status, away.text()), (StatusCode::SERVICE_UNAVAILABLE, "session store unavailable"));
    running.end().await;
    Ok(())
}

#[tokio::test]
async fn a_message_for_a_stream_of_one_proxy_goes_where_the_stream_said_by_the_other_as_well() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let redis = Redis::start().await?;
    let got: Arc<Mutex<Vec<Got>>> = Arc::default();
    // The server's end of the stream, whose drop would end it.
    let stream: Arc<Mutex<Option<skep_net::BodySender>>> = Arc::default();
    let held = stream.clone();
    let says = move |got: &Got| {
        if got.method != Method::GET {
            return Response::builder().status(202).body(Body::full("Accepted")).unwrap();
        }
        let (sender, body) = Body::channel(1);
        sender.try_send("event: endpoint\ndata: /messages?session_id=abc\n\n".into()).unwrap();
        *held.lock().unwrap() = Some(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    };
    let server = backend("127.0.0.1:0".parse()?, Arc::new(says), got.clone()).await?;
    let url = format!("http://{server}/their/sse");
    let (one, two) = (proxy_of("sse", &url, redis.port).await?, proxy_of("sse", &url, redis.port).await?);
    let mut events = TestClient::new(one.address()).events(Method::GET, "/sse", "").await?;
    assert_eq!(events.next().await?.unwrap().1, "/messages?session_id=abc");
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for (path, expected) in [
        ("/messages?session_id=abc", "/messages?session_id=abc"),
        ("/admin?session_id=abc", "/their/sse?session_id=abc"),
    ] {
        let reply = TestClient::new(two.address()).whole(Method::POST, path, ping.clone()).await?;
        assert_eq!(reply.status, StatusCode::ACCEPTED);
        assert_eq!(got.lock().unwrap().last().unwrap().uri, expected);
    }
    drop((events, stream));
    for running in [one, two] {
        running.end().await;
    }
    Ok(())
}

/// A server on stdio that does nothing before it was initialized, and tells what it was asked for.
const STRICT: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *notifications/initialized*) initialized=$asked; continue ;;
    *notifications/*) continue ;;
    *initialize*) asked=yes; result='"result":{"protocolVersion":"2025-06-18","capabilities":{}}' ;;
    *) if [ "$initialized" ]; then result='"result":{"well":true}'; else result='"error":{"code":-1,"message":"who are you?"}'; fi ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$result"
done
"#;

#[tokio::test]
async fn a_new_server_is_initialized_for_the_sessions_of_the_previous_proxy() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let redis = Redis::start().await?;
    let proxy = async || -> Result<Running> {
        let config = json!({
            "name": "s", "transport": "stdio", "host": "127.0.0.1", "port": 0, "cmd_args": ["-c", STRICT],
            "scaling_config": { "session_redis": { "address": format!("127.0.0.1:{}", redis.port), "key_prefix": "mine:" } },
        });
        let config = RunConfig::from_slice(config.to_string().as_bytes())?;
        let overrides = Overrides { image: "exec://sh".to_owned(), patch: None };
        let settings = Settings::new(config, &overrides, &BTreeMap::new())?;
        let grace = Grace { linger: Duration::ZERO, finish: Duration::from_secs(1) };
        Ok(start(&settings, &BTreeMap::new(), Place::Machine(Ports::default()), grace).await?)
    };
    let before = proxy().await?;
    let session = TestClient::new(before.address()).initialized().await?.session;
    before.end().await;
    let after = proxy().await?;
    let mut caller = TestClient::new(after.address());
    caller.session = session;
    for id in 0..3 {
        assert_eq!(caller.ask(json!(id), "ping", json!({})).await?.message()?["result"], json!({ "well": true }));
    }
    after.end().await;
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_not_there_stops_the_start_and_says_so() -> Result<()> {
    skep_testkit::install_crypto_provider();
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let error = proxy("127.0.0.1:1".parse()?, free).await.unwrap_err();
    assert!(error.to_string().starts_with("sessions:"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_stops_the_start_and_says_so() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let config = json!({
        "transport": "sse", "host": "127.0.0.1", "port": taken.local_addr()?.port(), "remote_url": "http://127.0.0.1:1",
    });
    let settings =
        Settings::new(RunConfig::from_slice(config.to_string().as_bytes())?, &Overrides::default(), &BTreeMap::new())?;
    let grace = Grace { linger: Duration::ZERO, finish: Duration::ZERO };
    let error =
        start(&settings, &BTreeMap::new(), Place::Machine(Ports::default()), grace).await.unwrap_err().to_string();
    assert!(error.contains(&taken.local_addr()?.to_string()) && error.contains("in use"), "{error}");
    Ok(())
}

async fn counted(server: std::net::SocketAddr, port: u16, on_this_port: Option<bool>) -> Result<Running> {
    let config = json!({
        "name": "s", "transport": "streamable-http", "host": "127.0.0.1", "port": 0, "remote_url": format!("http://{server}"),
        "telemetry_config": { "enablePrometheusMetricsPath": true, "prometheusPort": port, "metricsOnTransportPort": on_this_port },
    });
    let settings =
        Settings::new(RunConfig::from_slice(config.to_string().as_bytes())?, &Overrides::default(), &BTreeMap::new())?;
    let grace = Grace { linger: Duration::ZERO, finish: Duration::ZERO };
    Ok(start(&settings, &BTreeMap::new(), Place::Machine(Ports::default()), grace).await?)
}

#[tokio::test]
async fn calls_are_counted_and_shown_on_both_ports_or_on_one() -> Result<()> {
    let server = backend("127.0.0.1:0".parse()?, Arc::new(answer), Arc::default()).await?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    for on_this_port in [None, Some(true), Some(false)] {
        let running = counted(server, taken.local_addr()?.port(), on_this_port).await?;
        let caller = TestClient::new(running.address()).initialized().await?;
        caller.call(json!(1), "echo", json!({})).await?;
        let beside = running.diagnostics().context("no diagnostics")?;
        assert_ne!(beside.port(), taken.local_addr()?.port(), "that one is taken");
        let page = TestClient::new(beside).whole(Method::GET, "/metrics", "").await?;
        for expected_text in
            ["mcp_method=\"initialize\"", "mcp_resource_id=\"echo\"", "server=\"s\"", "toolhive_mcp_tool_calls_total"]
        {
            assert!(page.text().contains(expected_text), "{expected_text}: {}", page.text());
        }
        assert_eq!(TestClient::new(beside).whole(Method::GET, "/mcp", "").await?.status, StatusCode::NOT_FOUND);
        let own = caller.whole(Method::GET, "/metrics", "").await?.status;
        assert_eq!(own, if on_this_port == Some(false) { StatusCode::NOT_FOUND } else { StatusCode::OK });
        running.end().await;
    }
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let running = counted(server, free, None).await?;
    assert_eq!(running.diagnostics().map(|address| address.port()), Some(free));
    running.end().await;
    assert!(TcpStream::connect(("127.0.0.1", free)).is_err(), "it ends with the proxy");
    Ok(())
}

#[tokio::test]
async fn a_stream_counts_as_open_until_it_ends_and_has_no_time() -> Result<()> {
    // The server's end of the stream, whose drop ends it.
    let stream: Arc<Mutex<Option<skep_net::BodySender>>> = Arc::default();
    let held = stream.clone();
    let says = move |_: &Got| {
        let (sender, body) = Body::channel(1);
        *held.lock().unwrap() = Some(sender);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    };
    let server = backend("127.0.0.1:0".parse()?, Arc::new(says), Arc::default()).await?;
    let running = counted(server, 0, None).await?;
    let caller = TestClient::new(running.address());
    let page = async || Ok::<_, anyhow::Error>(caller.whole(Method::GET, "/metrics", "").await?.text().to_owned());
    for (path, labels) in [("/sse", ",connection_type=\"sse\""), ("/mcp", "")] {
        let events = TestClient::new(running.address()).events(Method::GET, path, "").await?;
        let gauge = format!("toolhive_mcp_active_connections{{server=\"s\",transport=\"streamable-http\"{labels}}}");
        let shows = async |number: u8| page().await.map(|page| page.contains(&format!("{gauge} {number}\n")));
        assert!(shows(1).await?, "{gauge}: {}", page().await?);
        stream.lock().unwrap().take();
        eventually("the stream counts no more", PATIENCE, || async {
            Ok(if shows(0).await? { Seen::Yes(()) } else { Seen::NotYet(page().await?) })
        })
        .await?;
        drop(events);
    }
    let page = page().await?;
    let times = page.lines().filter(|line| line.contains("duration_seconds_count")).collect::<Vec<_>>();
    assert!(times.iter().any(|line| line.contains("mcp_method=\"unknown\"") && line.ends_with(" 1")), "{times:?}");
    assert!(!times.iter().any(|line| line.contains("sse_connection")), "{times:?}");
    assert!(page.contains("mcp_method=\"sse_connection\""), "{page}");
    running.end().await;
    Ok(())
}
