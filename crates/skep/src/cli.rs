//! The command line: every subcommand and flag, and nothing of what they do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Runs MCP servers for your people and agents.
///
/// Exit codes: 0 success; 1 failure, with one line that says why; 2 invalid command line.
#[derive(Debug, Parser)]
#[command(name = "skep", version, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explain what policies permit
    #[command(subcommand)]
    Authz(Authz),
    /// Call a tool of an MCP server, and print what it returns
    Call(Call),
    /// Check manifests without a cluster: fields, types, bounds and rules, and the operator's own validation
    Check(Check),
    /// Print the custom resource definitions, or apply them to a cluster
    Crds(Crds),
    /// Print a completion script for your shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Run a small MCP server on standard input and output, to try things with
    DemoServer,
    /// Run the operator: reconcile the custom resources of a cluster
    Operator(Operator),
    /// Run the proxy in front of one server, as the operator starts it in a pod
    Proxy(Proxy),
    /// Run the servers of manifests on this machine, each behind a proxy of its own
    Run(Run),
    /// List the tools of an MCP server
    Tools(Tools),
    /// Remove the operator from a cluster: stop it, remove its finalizers from every object, and delete its Lease
    Uninstall(Uninstall),
    /// Serve many MCP servers as one
    #[command(subcommand)]
    Vmcp(Vmcp),
    /// Print the version
    Version {
        /// How to print it
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// End the server processes of a `skep` that was killed; `skep` starts this itself
    #[command(hide = true)]
    Watchdog,
    /// Become a server process once a byte on standard input says that it is registered; `skep` starts this itself
    #[command(hide = true)]
    Launch {
        /// The program and its arguments
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

/// Serves many MCP servers as one.
#[derive(Debug, Subcommand)]
pub(crate) enum Vmcp {
    /// Serve the virtual server of a configuration file
    Serve(VmcpServe),
    /// Check a configuration file, and print what it configures
    Validate(VmcpValidate),
    /// Write a configuration file to start from
    Init(VmcpInit),
    /// Print the version
    Version {
        /// How to print it
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

/// Writes a configuration to start from.
#[derive(Debug, Args)]
pub(crate) struct VmcpInit {
    /// The group, after which the virtual server is named
    #[arg(short, long)]
    pub(crate) group: String,
    /// A backend, with its URL; may be repeated
    #[arg(long = "backend", value_name = "NAME=URL")]
    pub(crate) backends: Vec<String>,
    /// The file to write; standard output without it
    #[arg(short, long, visible_short_alias = 'c', visible_alias = "config", value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Serves a virtual server.
#[derive(Debug, Args)]
pub(crate) struct VmcpServe {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// The port to listen on; 0 for any that is free
    #[arg(long, default_value_t = 4483)]
    pub(crate) port: u16,
    /// Record every request in an audit log, unless the configuration says how
    #[arg(long)]
    pub(crate) enable_audit: bool,
    /// How long an idle session lives, such as 30m
    #[arg(long, value_name = "TIME")]
    pub(crate) session_ttl: Option<String>,
    /// Log more
    #[arg(long)]
    pub(crate) debug: bool,
}

/// Checks the configuration of a virtual server.
#[derive(Debug, Args)]
pub(crate) struct VmcpValidate {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Explains policies.
#[derive(Debug, Subcommand)]
pub(crate) enum Authz {
    /// Decide as a proxy would, and print which policies decide and where they stand. Exit code 1 if it is denied
    Explain(AuthzExplain),
}

/// Explains decisions.
#[derive(Debug, Args)]
pub(crate) struct AuthzExplain {
    /// The policies: Cedar (*.cedar), or in JSON or YAML the authorization configuration of a proxy, an MCPAuthzConfig, or an MCPServer or
    /// MCPRemoteProxy with inline policies
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The claims of the client's token, as a JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) claims: PathBuf,
    /// The name of the MCP server, which policies know as MCP::"NAME"
    #[arg(long, value_name = "NAME")]
    pub(crate) server: String,
    /// The method of the request
    #[arg(long, default_value = "tools/call")]
    pub(crate) method: String,
    /// The tool, prompt or resource that is asked for; without it and --tools, each that the policies name is explained
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// An argument of the call; may be given more than once
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// All arguments, as a JSON object
    #[arg(long, value_name = "OBJECT", conflicts_with = "arguments")]
    pub(crate) json: Option<String>,
    /// The tools of the server as `skep tools URL -o json` prints them, - for standard input: explains each, or gives the annotations of
    /// the one that is named
    #[arg(long, value_name = "FILE|-")]
    pub(crate) tools: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Checks manifests.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A manifest, a directory of them (*.yaml, *.yml, *.json), or - for standard input
    #[arg(short, long = "file", value_name = "FILE|DIR|-", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Prints definitions, or applies them to a cluster.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Crds {
    /// What to do with them, if not print them
    #[command(subcommand)]
    pub(crate) action: Option<CrdsAction>,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

/// The action on the definitions.
#[derive(Debug, Subcommand)]
pub(crate) enum CrdsAction {
    /// Apply them to a cluster by server-side apply, and wait until its API serves them
    Apply {
        /// How to print the result
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
        /// The cluster
        #[command(flatten)]
        cluster: Cluster,
    },
}

/// Runs the operator.
#[derive(Debug, Args)]
pub(crate) struct Operator {
    /// The address of /metrics, /healthz and /readyz; 0 to disable
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub(crate) metrics_bind_address: String,
    /// The address of the probes for the kubelet; 0 to disable
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub(crate) health_probe_bind_address: String,
    /// Use leader election, so that only one of several operators acts
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// Runs a proxy.
#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// `run IMAGE`; unknown flags are ignored, as the original ignored them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "run IMAGE")]
    pub(crate) arguments: Vec<String>,
}

/// Runs servers on this machine.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").args(["files", "demo"]).required(true)))]
pub(crate) struct Run {
    /// A manifest, a directory of them (*.yaml, *.yml, *.json), or - for standard input
    #[arg(short, long = "file", value_name = "FILE|DIR|-", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Run the demo server, which is part of this program
    #[arg(long)]
    pub(crate) demo: bool,
    /// The port of the demo [default: 8080, or any if that is in use]
    #[arg(long, value_name = "PORT", conflicts_with = "files", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Allow browser requests from this origin, such as http://localhost:6274; may be given more than once
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Accept this Host as well, beside localhost and loopback addresses; may be given more than once
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow_host: Vec<String>,
    /// Append the events of servers with `spec.audit` to this file [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,
    /// Show the logs of the servers and their proxies
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// How to print state changes
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Lists tools.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// The server
    #[command(flatten)]
    pub(crate) server: McpServer,
    /// How to print them
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// Calls a tool.
#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The server
    #[command(flatten)]
    pub(crate) server: McpServer,
    /// The name of the tool
    pub(crate) tool: String,
    /// An argument; a value that is JSON, such as 5 or true, is sent as that, and any other one as text; may be given more than once
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// All arguments, as a JSON object
    #[arg(long, value_name = "OBJECT", conflicts_with = "arguments")]
    pub(crate) json: Option<String>,
    /// How to print the result: its text, or all of it
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

/// An MCP server that speaks HTTP.
#[derive(Debug, Args)]
pub(crate) struct McpServer {
    /// The URL of the server, such as http://localhost:8080/mcp
    pub(crate) url: String,
    /// A header of every request, such as 'Authorization: Bearer ...'; may be given more than once
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The transport of the server [default: found out by asking it]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<HttpTransport>,
    /// How long all of it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
}

/// A transport over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HttpTransport {
    /// Streamable HTTP
    StreamableHttp,
    /// HTTP with a stream of events beside it, which the protocol deprecated
    Sse,
}

/// Removes the operator from a cluster. Workloads keep running; the definitions and all objects stay.
#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// The namespace of the operator
    #[arg(short, long, value_name = "NAME", default_value = "skep-system")]
    pub(crate) namespace: String,
    /// The name of its Deployment
    #[arg(long, value_name = "NAME", default_value = "skep-operator")]
    pub(crate) deployment: String,
    /// The namespaces that it watches, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", env = "WATCH_NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespace: Vec<String>,
    /// The operator is already removed, with its Deployment and its Lease
    #[arg(long)]
    pub(crate) operator_gone: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How to print what is done
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// The cluster to use.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's own account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// How documents are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// As YAML documents
    #[default]
    Yaml,
    /// As one JSON list
    Json,
}

#[cfg(test)]
mod tests;
