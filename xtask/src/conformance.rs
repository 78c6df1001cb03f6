//! `cargo xtask conformance`: the official suite, directly at a server and through `skep proxy` and `skep vmcp`, must give the
//! same results.
//!
//! ```text
//!                    ┌─ direct ────────────────────────────────────────┐
//!                    ├─ remote ──▶ skep proxy, in front of a URL ──────┼─▶ fixture, streamable HTTP
//!                    ├─ vmcp ────▶ skep vmcp, with one backend ────────┤
//!   suite ──────────▶├─ peer ────▶ another proxy, if one is named ─────┘
//!                    ├─ process ─▶ skep proxy, which runs it ────────────▶ fixture, streamable HTTP
//!                    ├─ stdio ───▶ skep proxy, which runs it ────────────▶ fixture, stdio
//!                    └─ pods ────▶ a Service that the operator made ─────▶ fixture in a pod, both ways (`--pods`)
//! ```
//!
//! There is no list of expected failures. A check that the fixture passes directly must pass on every path; a check
//! that is impossible on one (a stdio server has no stream to close) is reported.

mod install;
mod results;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;

use self::install::Installed;
use self::results::Results;
use crate::pods::{Images, Pods, Subject};
use crate::process::{Process, free_port, wait_for_port};
use crate::skep::{self, Behind, Program, Proxy};
use crate::ui;

/// How long the fixture may take to open its port.
const START: Duration = Duration::from_secs(30);

/// The suites: a name, the package under which it is installed, which of its scenarios are run, and the server on stdio for it. The
/// proxy opens a server of both eras in the legacy one, so the last suite needs one of its own era.
const SUITES: [Suite; 3] = [
    Suite { name: "2025-11-25", package: "suite-2025-11-25", chosen: &["--suite", "active"], on_stdio: "fixture.mjs" },
    Suite {
        name: "2025-11-25 as of today",
        package: "suite-2026-07-28",
        chosen: &["--requirements", "2025-11-25"],
        on_stdio: "fixture.mjs",
    },
    Suite {
        name: "2026-07-28",
        package: "suite-2026-07-28",
        chosen: &["--requirements", "2026-07-28"],
        on_stdio: "modern.mjs",
    },
];

/// What to run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Another proxy to test beside ours, such as http://127.0.0.1:9000/mcp. It must stand in front of the fixture; give
    /// that a port by `--fixture-port`.
    #[arg(long, value_name = "URL")]
    peer_url: Option<String>,
    /// Where the fixture listens; left out, on a free port.
    #[arg(long, value_name = "PORT")]
    fixture_port: Option<u16>,
    /// Run one scenario only.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Also through the operator, on the pods of `cargo xtask cluster up`: an image is built and put there.
    #[arg(long)]
    pods: bool,
    #[command(flatten)]
    images: Images,
    /// The `skep` to test. Left out, it is built (release).
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// A version of the official suite.
struct Suite {
    name: &'static str,
    package: &'static str,
    chosen: &'static [&'static str],
    on_stdio: &'static str,
}

/// One way to the fixture.
struct Way<'a> {
    name: &'static str,
    url: String,
    /// What must run meanwhile.
    _proxy: Option<Proxy>,
    /// The cluster in whose network it is.
    cluster: Option<&'a Pods>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let binary = skep::binary(arguments.binary.as_deref())?;
    let installed = install::install()?;
    let pods = if arguments.pods { Some(Pods::start(&arguments.images)?) } else { None };
    let (mut failures, mut warnings) = (Vec::new(), Vec::new());
    for suite in &SUITES {
        ui::progress(&format!("{}…", suite.name));
        let results = run_suite(arguments, suite, &binary, &installed, pods.as_ref())?;
        ui::result(&format!("\n{}\n{}\n", suite.name, results::table(&results)));
        let worse = results::worse(&results);
        let named = |line: String| format!("{}: {line}", suite.name);
        failures.extend(worse.failures.into_iter().map(named));
        warnings.extend(worse.warnings.into_iter().map(named));
    }
    for (what, lines) in
        [("what cannot come about on a way", &warnings), ("what must be as on the direct way and is not", &failures)]
    {
        if !lines.is_empty() {
            ui::result(&format!("{what}:\n{}\n", lines.join("\n")));
        }
    }
    if !failures.is_empty() {
        bail!("{} checks differ; see above, and `{}`", failures.len(), installed.results().display());
    }
    ui::result("every way gives what the direct one gives");
    Ok(())
}

/// Runs a suite on every way. Each suite has processes of its own: a server on stdio keeps to the era it was opened in.
fn run_suite(
    arguments: &Arguments,
    suite: &Suite,
    binary: &Path,
    installed: &Installed,
    pods: Option<&Pods>,
) -> Result<Vec<(&'static str, Results)>> {
    let program = Program { path: installed.node(), arguments: vec![installed.fixture().display().to_string()] };
    let on_stdio = installed.directory().join(suite.on_stdio).display().to_string();
    let on_stdio = Program { path: installed.node(), arguments: vec![on_stdio] };
    let port = arguments.fixture_port.map_or_else(free_port, Ok)?;
    let _fixture = Process::start(
        Command::new(&program.path)
            .args(&program.arguments)
            .env("MCP_PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null()),
    )?;
    wait_for_port(port, START).context("the fixture does not start")?;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let results = installed.results().join(suite.name.replace(' ', "-"));

    let mut ways = vec![Way { name: "direct", url: url.clone(), _proxy: None, cluster: None }];
    let proxied = [
        ("remote", Behind::Url(url.clone())),
        ("process", Behind::Http(&program)),
        ("stdio", Behind::Stdio(&on_stdio)),
    ];
    for (name, behind) in &proxied {
        let proxy = Proxy::start(binary, &results.join(format!("{name}-proxy")), behind)?;
        if matches!(behind, Behind::Http(_)) {
            proxy.wait_for_server(START)?;
        }
        ways.push(Way { name, url: proxy.url(), _proxy: Some(proxy), cluster: None });
    }
    // The suite knows everything by its own name: nothing gets a prefix where there is one backend.
    let members = json!({ "aggregation": { "conflictResolution": "prefixOnConflict" } });
    let backends = [("fixture".to_owned(), url)];
    let proxy = Proxy::start_virtual(binary, &results.join("vmcp-proxy"), &backends, members)?;
    ways.push(Way { name: "vmcp", url: proxy.url(), _proxy: Some(proxy), cluster: None });
    if let Some(pods) = pods {
        for (name, is_stdio) in [("pods", false), ("pods-stdio", true)] {
            let (directory, node) = (installed.directory(), installed.node());
            let url = pods.serve(&Subject {
                name: &format!("suite-{}-{name}", suite.name.replace(' ', "-")),
                directory: &directory,
                program: node.strip_prefix(&directory).context("Node.js is not beside the suite")?,
                arguments: &[Path::new(if is_stdio { suite.on_stdio } else { "fixture.mjs" })],
                is_stdio,
            })?;
            ways.push(Way { name, url, _proxy: None, cluster: Some(pods) });
        }
    }
    ways.extend(arguments.peer_url.clone().map(|url| Way { name: "peer", url, _proxy: None, cluster: None }));

    let mut all = Vec::new();
    for way in &ways {
        let directory = results.join(way.name);
        let _none = std::fs::remove_dir_all(&directory);
        let mut command = match way.cluster {
            Some(cluster) => cluster.inside(&installed.node())?,
            None => Command::new(installed.node()),
        };
        command.arg(installed.suite(suite.package)).args(["server", "--url", &way.url]).arg("-o").arg(&directory);
        match &arguments.scenario {
            Some(scenario) => command.args(["--scenario", scenario]),
            None => command.args(suite.chosen),
        };
        // It ends with an error when a check fails; what failed is in its files.
        let output = command.stdin(Stdio::null()).output().context("cannot start the suite")?;
        let words = String::from_utf8_lossy(&output.stderr);
        let found = Results::read(&directory).with_context(|| format!("{}: {}", way.name, words.trim()))?;
        all.push((way.name, found));
    }
    Ok(all)
}
