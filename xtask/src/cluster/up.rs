//! From nothing, or from half a cluster, to a node that is ready.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use skep_testkit::assets::Tool;

use super::daemon::{self, Daemon};
use super::layout::{Layout, NODE, PAUSE_IMAGE};
use super::services::{self, Service};
use super::{files, inside, network, pki, requirements};
use crate::image;
use crate::image::binary::Binary;
use crate::program::{capture, wait_until};
use crate::ui;

/// A machine that compiles at the same time needs patience.
const PATIENCE: Duration = Duration::from_mins(2);

pub(super) fn up(layout: &Layout) -> Result<()> {
    if every_daemon_runs(layout) && node_is_ready(layout).is_ok() {
        ui::progress("the cluster is up already");
        return Ok(());
    }
    requirements::install()?;
    services::tool(Tool::Kubectl)?;
    make_directories(layout)?;
    network::make()?;
    pki::make(layout)?;
    for (name, text) in files::all(layout)? {
        fs::write(layout.file(name), text).with_context(|| format!("cannot write the cluster's `{name}`"))?;
    }

    let mut cluster = Starting { layout, daemons: Vec::new() };
    ui::progress("starting the control plane…");
    cluster.start(&services::etcd()?)?;
    cluster.start(&services::apiserver()?)?;
    cluster.start(&services::containerd())?;
    cluster.wait_until("the API server to be ready", || kubectl(layout, &["get", "--raw", "/readyz"]).map(drop))?;
    cluster.start(&services::controller_manager()?)?;
    cluster.start(&services::scheduler()?)?;
    cluster.wait_until("containerd to respond", || capture(layout.ctr().arg("version")).map(drop))?;
    load_pause_image(layout)?;

    ui::progress("starting the node…");
    cluster.start(&services::kubelet(layout)?)?;
    cluster.start(&services::proxy()?)?;
    cluster.start(&services::dns()?)?;
    cluster.wait_until("the node to be ready", || node_is_ready(layout))
}

/// Kills one program, starts it again, and returns when the node is ready.
pub(super) fn restart(layout: &Layout, name: &str) -> Result<()> {
    let all = services::all(layout)?;
    let Some(service) = all.iter().find(|service| service.name == name) else {
        let names: Vec<&str> = all.iter().map(|service| service.name).collect();
        bail!("the cluster has no program `{name}`; name one of `{}`", names.join("`, `"));
    };
    daemon::stop(layout, &[name.to_owned()])?;
    let mut cluster = Starting { layout, daemons: Vec::new() };
    cluster.start(service)?;
    cluster.wait_until("the API server to be ready", || kubectl(layout, &["get", "--raw", "/readyz"]).map(drop))?;
    cluster.wait_until("the node to be ready", || node_is_ready(layout))
}

/// A cluster on its way: what was started just now is watched while we wait for the rest.
struct Starting<'a> {
    layout: &'a Layout,
    daemons: Vec<Daemon>,
}

impl Starting<'_> {
    fn start(&mut self, service: &Service) -> Result<()> {
        self.daemons.extend(daemon::start(self.layout, service.name, &service.command)?);
        Ok(())
    }

    fn wait_until(&mut self, what: &str, mut look: impl FnMut() -> Result<()>) -> Result<()> {
        let mut failure = None;
        let waited = wait_until(what, PATIENCE, || {
            failure = self.daemons.iter_mut().find_map(|daemon| daemon.check(self.layout).err());
            if failure.is_some() { Ok(()) } else { look() }
        });
        failure.map_or(waited, Err)
    }
}

/// The kubeconfig in here is the cluster's root password, so no other user may read the directory, or have created it
/// for us.
fn make_directories(layout: &Layout) -> Result<()> {
    let directory = layout.directory();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("cannot make `{}`", directory.display()))?;
    let found = fs::symlink_metadata(directory).with_context(|| format!("cannot read `{}`", directory.display()))?;
    if !found.is_dir() || found.uid() != 0 {
        bail!("`{}` is not a directory of root's: set SKEP_CLUSTER_DIR to another", directory.display());
    }
    for name in ["pki", "logs", "cni", "kubelet"] {
        let path = layout.file(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
    }
    Ok(())
}

/// Every pod needs an idle process that holds its network namespace; ours is a mode of the test fixture.
fn load_pause_image(layout: &Layout) -> Result<()> {
    let archive = layout.file("pause.tar");
    image::build(&Binary::fixture(), PAUSE_IMAGE, &archive)?;
    super::load(layout, &archive)
}

fn node_is_ready(layout: &Layout) -> Result<()> {
    let status = "jsonpath={.status.conditions[?(@.type=='Ready')].status}";
    let status = kubectl(layout, &["get", "node", NODE, "-o", status])?;
    if status != "True" {
        bail!("node `{NODE}` is not ready; {}", daemon::last_words(layout, "kubelet"));
    }
    Ok(())
}

fn every_daemon_runs(layout: &Layout) -> bool {
    let names = daemon::names(layout);
    !names.is_empty() && names.iter().all(|name| daemon::is_running(layout, name))
}

fn kubectl(layout: &Layout, arguments: &[&str]) -> Result<String> {
    capture(inside(layout, "kubectl")?.args(arguments).arg("--request-timeout=5s"))
}
