//! `cargo xtask cluster`: a real one-node Kubernetes on a bare Linux machine, for end-to-end tests.
//!
//! ```text
//!   network namespace `skep`                                             host
//!   ┌────────────────────────────────────────────────────────────┐      everything else: nothing in the
//!   │ lo  127.0.0.1: etcd, API server, controllers, scheduler    │      namespace has a way out, so no
//!   │ br0 10.88.0.1: kubelet, kube-proxy, CoreDNS, containerd ──▶ pods 10.88.0.0/16   packet leaves the machine
//!   └────────────────────────────────────────────────────────────┘
//! ```
//!
//! Its files are in one directory, `$SKEP_CLUSTER_DIR` or `skep-cluster` among the temporary files. Every process is
//! recorded there by id and start time, and `down` ends those and no others. `up` starts what does not run, so it can be
//! repeated.

mod daemon;
mod down;
mod files;
mod layout;
mod network;
mod pki;
mod requirements;
mod services;
mod up;

use std::path::PathBuf;
use std::process::Command as Process;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

pub(crate) use layout::Layout;

use crate::program::{self, capture};
use crate::ui;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the cluster, or what is missing of it, and print the path of its kubeconfig.
    Up,
    /// Stop the cluster and remove all of it.
    Down,
    /// Kill one of the cluster's programs and start it again, as tests of what then happens do.
    Restart {
        /// Which one, such as kube-apiserver.
        #[arg(value_name = "PROGRAM")]
        name: String,
    },
    /// Import image archives: `cargo xtask image` writes one.
    Load {
        /// The archives.
        #[arg(required = true, value_name = "IMAGE.tar")]
        archives: Vec<PathBuf>,
    },
    /// Print the path of the kubeconfig of the running cluster.
    Kubeconfig,
    /// Run a command in the cluster's network, with its kubeconfig and kubectl.
    Exec {
        /// The command and its arguments, such as `kubectl get pods`.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

pub(crate) fn run(command: &Command) -> Result<()> {
    let layout = Layout::from_env();
    match command {
        Command::Up => {
            up(&layout)?;
            ui::result(&layout.kubeconfig().display().to_string());
            Ok(())
        }
        Command::Down => down(&layout),
        Command::Restart { name } => {
            require_up(&layout)?;
            up::restart(&layout, name)
        }
        Command::Load { archives } => archives.iter().try_for_each(|archive| load(&layout, archive)),
        Command::Kubeconfig => {
            require_up(&layout)?;
            ui::result(&layout.kubeconfig().display().to_string());
            Ok(())
        }
        Command::Exec { command } => {
            require_up(&layout)?;
            let [name, arguments @ ..] = command.as_slice() else { bail!("no command was given") };
            program::run(inside(&layout, name)?.args(arguments))
        }
    }
}

/// Starts what does not run, and returns when pods can be.
pub(crate) fn up(layout: &Layout) -> Result<()> {
    requirements::check_host()?;
    up::up(layout)
}

/// Stops everything that was recorded and removes the directory.
pub(crate) fn down(layout: &Layout) -> Result<()> {
    requirements::check_host()?;
    down::down(layout)
}

/// Imports an image archive for pods to use.
pub(crate) fn load(layout: &Layout, archive: &std::path::Path) -> Result<()> {
    require_up(layout)?;
    if !archive.is_file() {
        bail!("no image archive at `{}`: `cargo xtask image` writes one", archive.display());
    }
    capture(layout.ctr().args(["images", "import"]).arg(archive))
        .with_context(|| format!("cannot import `{}`", archive.display()))?;
    Ok(())
}

/// A program in the cluster's network, with its kubeconfig, and with kubectl on the PATH.
pub(crate) fn inside(layout: &Layout, name: &str) -> Result<Process> {
    let kubectl = services::tool(skep_testkit::assets::Tool::Kubectl)?;
    let tools = kubectl.parent().map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&path)))
        .context("the PATH cannot be extended")?;
    let mut command = Process::new("nsenter");
    command.arg(Layout::network_argument()).arg(name).env("KUBECONFIG", layout.kubeconfig()).env("PATH", path);
    Ok(command)
}

fn require_up(layout: &Layout) -> Result<()> {
    requirements::check_host()?;
    if !daemon::is_running(layout, "kube-apiserver") {
        bail!("no cluster is running in `{}`: start one with `cargo xtask cluster up`", layout.directory().display());
    }
    Ok(())
}
