//! The command line: every subcommand and flag, and nothing of what they do.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Runs MCP servers for your people and agents.
///
/// Exit codes: 0 all went well; 1 it did not, and one line says why; 2 the command line is wrong.
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
    /// Call a tool of an MCP server, and print what it returns
    Call(Call),
    /// Check manifests without a cluster: fields, types, bounds and rules, and what the operator would make of them
    Check(Check),
    /// Print the custom resource definitions, or put them into a cluster
    Crds(Crds),
    /// Print a completion script for your shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Run a small MCP server on standard input and output, to try things with
    DemoServer,
    /// Run the operator: watch manifests in a cluster and bring about what they say
    Operator(Operator),
    /// Run the proxy in front of one server, as the operator starts it in a pod
    Proxy(Proxy),
    /// Run the servers of manifests on this machine, each behind a proxy of its own
    Run(Run),
    /// List the tools of an MCP server
    Tools(Tools),
    /// Leave a cluster: stop the operator, remove its finalizers from every object, and delete its Lease
    Uninstall(Uninstall),
    /// Print the version
    Version {
        /// How to print it
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// End the server processes of a `skep` that was killed; `skep` starts this itself
    #[command(hide = true)]
    Watchdog,
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

/// Prints definitions, or puts them into a cluster.
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

/// What to do with the definitions.
#[derive(Debug, Subcommand)]
pub(crate) enum CrdsAction {
    /// Put them into a cluster by server-side apply, and wait until it serves them
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
    /// Where /metrics, /healthz and /readyz are served; 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub(crate) metrics_bind_address: String,
    /// Where they are served for the kubelet; 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub(crate) health_probe_bind_address: String,
    /// Compete for a lease, so that only one of several operators acts
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub(crate) leader_elect: bool,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// Runs a proxy.
#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// `run IMAGE`; flags that are not known are ignored, as the operator before us ignored them
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
    /// Run the demo server, which is in this program
    #[arg(long)]
    pub(crate) demo: bool,
    /// The port of the demo [default: 8080, or any if that is taken]
    #[arg(long, value_name = "PORT", conflicts_with = "files", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Let pages of this origin call from a browser, such as http://localhost:6274; may be given more than once
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) allow_origin: Vec<String>,
    /// Answer to this Host as well, beside localhost and addresses of loopback; may be given more than once
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow_host: Vec<String>,
    /// Show what the servers and their proxies log
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// How to print what happens
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

/// Leaves a cluster. What runs in it goes on running; the definitions and all objects stay.
#[derive(Debug, Args)]
pub(crate) struct Uninstall {
    /// The namespace of the operator
    #[arg(short, long, value_name = "NAME", default_value = "skep-system")]
    pub(crate) namespace: String,
    /// The name of its Deployment
    #[arg(long, value_name = "NAME", default_value = "skep-operator")]
    pub(crate) deployment: String,
    /// The namespaces that it watches, with commas [default: all]
    #[arg(long, value_name = "NAMES", env = "WATCH_NAMESPACE", value_delimiter = ',')]
    pub(crate) watch_namespace: Vec<String>,
    /// The operator is gone already, with its Deployment and its Lease
    #[arg(long)]
    pub(crate) operator_gone: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How to print what is done
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Output,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// Which cluster to talk to.
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
