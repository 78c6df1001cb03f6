//! `cargo xtask peers`: other people's clients and servers, with `skep proxy` between them, each by each way that fits.

mod bridge;
mod eras;
mod guarded;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::program::{self, cargo, wait_until};
use crate::{root, target_dir, ui};

/// How long a server may take for its first response: packages may have to be unpacked.
const PATIENCE: Duration = Duration::from_mins(1);

/// Packages of npm: their own versions, so that a run next year asks the same of us.
const NPM: [&str; 5] = [
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/client@2.4.0",
    "@modelcontextprotocol/server@2.4.0",
    "zod@4.6.7",
    "@modelcontextprotocol/server-everything@2026.8.31",
];

/// The same servers, as packages.
const PACKAGES: &str = "
apiVersion: toolhive.stacklok.dev/v1beta1
kind: MCPServer
metadata: {name: server-everything}
spec: {image: 'npx://@modelcontextprotocol/server-everything@2026.8.31'}
---
apiVersion: toolhive.stacklok.dev/v1beta1
kind: MCPServer
metadata: {name: mcp-server-time}
spec: {image: 'uvx://mcp-server-time@2026.10.10', proxyPort: 8081}
";

/// A server, how to start it, and a tool to call.
struct Server {
    name: &'static str,
    /// Program and arguments, by what it speaks.
    stdio: Option<Vec<String>>,
    sse: Option<Vec<String>>,
    streamable: Option<Vec<String>>,
    tool: &'static str,
    arguments: &'static str,
}

/// A client and what it can speak.
struct Caller {
    name: &'static str,
    command: Vec<String>,
    /// Whether it still speaks the older transport.
    sse: bool,
}

/// One way from client to server.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// What the server speaks.
    server: &'static str,
    /// What the client speaks.
    client: &'static str,
    remote: bool,
}

const WAYS: [Way; 6] = [
    Way { name: "stdio behind HTTP", server: "stdio", client: "streamable", remote: false },
    Way { name: "stdio behind SSE", server: "stdio", client: "sse", remote: false },
    Way { name: "SSE", server: "sse", client: "sse", remote: false },
    Way { name: "Streamable HTTP", server: "streamable-http", client: "streamable", remote: false },
    Way { name: "remote", server: "streamable-http", client: "streamable", remote: true },
    Way { name: "remote SSE", server: "sse", client: "sse", remote: true },
];

impl Way {
    /// Where the client calls, and where a remote server is called.
    fn path(self) -> &'static str {
        if self.client == "sse" { "sse" } else { "mcp" }
    }
}

/// Ends with its value, with all that it started.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Asked first: it ends what it started itself.
        let _gone = Command::new("kill").arg(self.0.id().to_string()).status();
        let _gone = self.0.wait();
    }
}

pub(crate) fn run(only_guarded: bool) -> Result<()> {
    program::build("building skep", cargo().args(["build", "--package", "skep"]))?;
    let home = target_dir()?.join("peers");
    fs::create_dir_all(&home)?;
    fetch(&home)?;
    // What needs no other peer comes first: it says most about what is wrong.
    let guarded = guarded::run(&home)?;
    if only_guarded {
        ui::result(&format!("oidc-provider, and a webhook behind hypercorn: {guarded}"));
        return Ok(());
    }
    build_peers(&home)?;
    let servers = servers(&home);
    let callers = callers(&home);
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for server in &servers {
        for way in WAYS {
            let Some(program) = server.speaks(way.server) else { continue };
            let title = format!("{} by {}", server.name, way.name);
            ui::progress(&title);
            let stage = Stage::start(&home, server, program, way).with_context(|| title.clone())?;
            let mut cells = vec![format!("{:<18} {:<18}", server.name, way.name)];
            for caller in &callers {
                if way.client == "sse" && !caller.sse {
                    cells.push(format!("{:<8}", "-"));
                    continue;
                }
                let result = stage.call(caller, server, way);
                cells.push(format!("{:<8}", if result.is_ok() { "ok" } else { "FAILED" }));
                failures.extend(result.err().map(|error| format!("{title}, {}: {error:#}", caller.name)));
            }
            rows.push(cells.join(" "));
        }
    }
    ui::progress("packages by skep run");
    let packages = Packages::start(&home)?;
    for (name, url) in &packages.urls {
        let server = servers.iter().find(|server| server.name == name).context("an unexpected server")?;
        let way = Way { name: "skep run", server: "stdio", client: "streamable", remote: false };
        let mut cells = vec![format!("{name:<18} {:<18}", way.name)];
        for caller in &callers {
            let result = call(url, caller, server, way);
            cells.push(format!("{:<8}", if result.is_ok() { "ok" } else { "FAILED" }));
            failures.extend(result.err().map(|error| format!("{name} by skep run, {}: {error:#}", caller.name)));
        }
        rows.push(cells.join(" "));
    }
    drop(packages);
    let (eras, failed) = eras::run(&home)?;
    failures.extend(failed);
    let (bridged, failed) = bridge::run(&home, &servers, &callers)?;
    failures.extend(failed);
    let names: Vec<String> = callers.iter().map(|caller| format!("{:<8}", caller.name)).collect();
    ui::result(&format!("{:<18} {:<18} {}\n{}", "server", "way", names.join(" "), rows.join("\n")));
    ui::result(&format!("\nclients of both eras, one stdio server\n{}", eras.join("\n")));
    ui::result(&format!("\nclients of both eras, servers of either\n{}", bridged.join("\n")));
    ui::result(&format!("\noidc-provider, and a webhook behind hypercorn\n{guarded}"));
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// The `skep` that was built for this run.
fn skep() -> Result<PathBuf> {
    Ok(target_dir()?.join("debug/skep"))
}

/// Fetches packages, once.
fn fetch(home: &Path) -> Result<()> {
    // The last one that was added.
    if !home.join("node_modules/oidc-provider").exists() {
        ui::progress("packages of npm…");
        fs::write(home.join("package.json"), r#"{"private":true,"type":"module"}"#)?;
        program::capture(
            Command::new("npm")
                .args(["install", "--silent", "--no-audit"])
                .args(NPM)
                .args(guarded::NPM)
                .current_dir(home),
        )?;
    }
    for (place, packages) in [
        ("python1", &["mcp==1.30.0", "mcp-server-time==2026.10.10", "uv", guarded::PYPI][..]),
        ("python2", &["mcp==2.3.0"]),
    ] {
        let place = home.join(place);
        // The last one that was added.
        if !place.join(if packages.contains(&guarded::PYPI) { "bin/hypercorn" } else { "bin/mcp" }).exists() {
            ui::progress(&format!("packages of PyPI: {}…", packages.join(" ")));
            program::capture(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
            program::capture(Command::new(place.join("bin/pip")).args(["install", "--quiet"]).args(packages))?;
        }
    }
    guarded::install(home)
}

/// Builds the peers that are no packages.
fn build_peers(home: &Path) -> Result<()> {
    let manifest = root().join("xtask/peers/rust/Cargo.toml");
    let mut build = cargo();
    build.args(["build", "--manifest-path"]).arg(manifest).arg("--target-dir").arg(home.join("rust"));
    program::build("building client and server on rmcp", &mut build)?;
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(home.join("go-peer")).arg(".").current_dir(root().join("xtask/peers/go"));
    program::build("building client and server on the Go SDK", &mut build)?;
    for (script, copy) in [
        ("sdk.mjs", "sdk.mjs"),
        ("client.mjs", "client.mjs"),
        ("eras/server.mjs", "eras-server.mjs"),
        ("eras/client.mjs", "eras-client.mjs"),
        ("eras/http.mjs", "eras-http.mjs"),
        ("eras/crowd.mjs", "eras-crowd.mjs"),
    ] {
        // Node looks for packages beside the script.
        fs::copy(root().join("xtask/peers").join(script), home.join(copy))?;
    }
    Ok(())
}

fn servers(home: &Path) -> Vec<Server> {
    let everything = home.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let everything = |mode: &str| Some(vec!["node".to_owned(), everything.display().to_string(), mode.to_owned()]);
    let go = |mode: &str| Some(vec![home.join("go-peer").display().to_string(), mode.to_owned()]);
    let time = home.join("python1/bin/mcp-server-time").display().to_string();
    vec![
        Server {
            name: "server-everything",
            stdio: everything("stdio"),
            sse: everything("sse"),
            streamable: everything("streamableHttp"),
            tool: "echo",
            arguments: r#"{"message":"hello"}"#,
        },
        Server {
            name: "go-sdk",
            stdio: go("stdio"),
            sse: go("sse"),
            streamable: go("streamable"),
            tool: "echo",
            arguments: r#"{"message":"hello"}"#,
        },
        Server {
            name: "mcp-server-time",
            stdio: Some(vec![time]),
            sse: None,
            streamable: None,
            tool: "get_current_time",
            arguments: r#"{"timezone":"UTC"}"#,
        },
    ]
}

fn callers(home: &Path) -> Vec<Caller> {
    let python = |name: &'static str| Caller {
        name,
        sse: true,
        command: vec![
            home.join(name).join("bin/python").display().to_string(),
            root().join(format!("xtask/peers/{name}.py")).display().to_string(),
        ],
    };
    let node = |name: &'static str| Caller {
        name,
        sse: true,
        command: vec!["node".to_owned(), home.join(format!("{name}.mjs")).display().to_string()],
    };
    let rust = Caller { name: "rmcp", sse: false, command: vec![home.join("rust/debug/peer").display().to_string()] };
    vec![python("python1"), python("python2"), node("sdk"), node("client"), rust]
}

impl Server {
    fn speaks(&self, what: &str) -> Option<&[String]> {
        match what {
            "stdio" => self.stdio.as_deref(),
            "sse" => self.sse.as_deref(),
            _ => self.streamable.as_deref(),
        }
    }
}

/// A proxy with its server, and the port that it listens on.
struct Stage {
    port: u16,
    _proxy: Running,
    _server: Option<Running>,
    _directory: PathBuf,
}

impl Stage {
    fn start(home: &Path, server: &Server, program: &[String], way: Way) -> Result<Self> {
        let (port, target) = (free()?, free()?);
        let directory = home.join(format!("{}-{port}", server.name));
        fs::create_dir_all(&directory)?;
        let mut config: Value = json!({
            "schema_version": "v0.1.0", "name": server.name, "container_name": server.name, "host": "127.0.0.1", "port": port,
            "transport": way.server, "env_vars": { "PORT": target.to_string() }, "target_port": target,
            "proxy_mode": if way.client == "sse" { "sse" } else { "streamable-http" },
            "cmd_args": program.get(1..).unwrap_or_default(),
        });
        let mut own = None;
        if way.remote {
            own = Some(spawn(
                Command::new(program.first().context("no program")?)
                    .args(program.get(1..).unwrap_or_default())
                    .env("PORT", target.to_string()),
                &directory.join("server.log"),
            )?);
            if let Some(config) = config.as_object_mut() {
                config.insert("remote_url".to_owned(), format!("http://127.0.0.1:{target}/{}", way.path()).into());
            }
        }
        fs::write(directory.join("runconfig.json"), config.to_string())?;
        let image = format!("exec://{}", program.first().context("no program")?);
        let proxy = spawn(
            Command::new(skep()?).args(["proxy", "run", &image]).current_dir(&directory),
            &directory.join("proxy.log"),
        )?;
        // An HTTP server is ready when its own port responds.
        let listens = if way.server == "stdio" { port } else { target };
        for port in [port, listens] {
            wait_until("the server", PATIENCE, || {
                std::net::TcpStream::connect(("127.0.0.1", port)).map(drop).context("not yet")
            })?;
        }
        Ok(Self { port, _proxy: proxy, _server: own, _directory: directory })
    }

    fn call(&self, caller: &Caller, server: &Server, way: Way) -> Result<()> {
        call(&self.url(way), caller, server, way)
    }

    fn url(&self, way: Way) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, way.path())
    }
}

/// Servers that are packages, fetched and started by `skep run`.
struct Packages {
    urls: Vec<(String, String)>,
    _run: Running,
}

impl Packages {
    fn start(home: &Path) -> Result<Self> {
        let manifests = home.join("packages.yaml");
        fs::write(&manifests, PACKAGES)?;
        let log = home.join("packages.log");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([home.join("python1/bin")].into_iter().chain(std::env::split_paths(&path)))?;
        let mut command = Command::new(skep()?);
        command.args(["run", "-o", "json", "-f"]).arg(&manifests).env("PATH", path);
        let run = spawn(&mut command, &log)?;
        let mut urls = Vec::new();
        wait_until("the packages to be fetched and ready", PATIENCE * 3, || {
            let text = fs::read_to_string(&log)?;
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let ready = lines.filter(|line| line.get("state") == Some(&json!("ready")));
            let named = |line: &Value, name: &str| Some(line.get(name)?.as_str()?.to_owned());
            urls = ready.filter_map(|line| Some((named(&line, "name")?, named(&line, "url")?))).collect();
            if urls.len() < 2 {
                bail!("only {} of 2 are; the end of the log: {}", urls.len(), text.lines().last().unwrap_or_default());
            }
            Ok(())
        })?;
        Ok(Self { urls, _run: run })
    }
}

fn call(url: &str, caller: &Caller, server: &Server, way: Way) -> Result<()> {
    let (program, arguments) = caller.command.split_first().context("no program")?;
    let mut command = Command::new("timeout");
    command.args(["60", program]).args(arguments).args([url, way.client, server.tool, server.arguments]);
    program::capture(&mut command).map(drop)
}

fn spawn(command: &mut Command, log: &Path) -> Result<Running> {
    let log = fs::File::create(log)?;
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    Ok(Running(child.with_context(|| format!("cannot start `{}`", command.get_program().display()))?))
}

fn free() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
