//! From a cluster to nothing: pods first, then every recorded process, then the files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::layout::Layout;
use super::{daemon, network};
use crate::program::{capture, wait_until};
use crate::ui;

pub(super) fn down(layout: &Layout) -> Result<()> {
    let directory = layout.directory();
    if !directory.exists() {
        ui::progress("there is no cluster");
        return network::remove();
    }
    // First the kubelet, which would start every pod again.
    daemon::stop(layout, &["kubelet".to_owned()])?;
    if daemon::is_running(layout, "containerd") {
        stop_containers(layout)?;
    }
    daemon::stop(layout, &daemon::names(layout))?;
    for mount in mounts_below(directory)? {
        capture(Command::new("umount").arg("--lazy").arg(&mount))?;
    }
    network::remove()?;
    fs::remove_dir_all(directory).with_context(|| format!("cannot remove `{}`", directory.display()))
}

/// Ends every container, and waits until containerd has ended their supervisors too: no other process will.
fn stop_containers(layout: &Layout) -> Result<()> {
    wait_until("the containers to end", Duration::from_secs(20), || {
        let tasks = capture(layout.ctr().args(["tasks", "list", "--quiet"]))?;
        for task in tasks.lines() {
            // It may end between the list and the signal.
            let _gone = capture(layout.ctr().args(["tasks", "kill", "--signal", "KILL", task]));
        }
        if tasks.is_empty() { Ok(()) } else { bail!("{} still run", tasks.lines().count()) }
    })
}

/// What is mounted below a directory, innermost first.
fn mounts_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mounts").context("cannot read the mount table")?;
    let mut mounts = mounts_below_in(directory, &table);
    mounts.sort_by(|left, right| right.cmp(left));
    Ok(mounts)
}

fn mounts_below_in(directory: &Path, table: &str) -> Vec<PathBuf> {
    let places = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    places.filter(|place| place.starts_with(directory) && place != directory).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_below_the_directory_are_ours() {
        let table = "overlay / overlay rw 0 0\ntmpfs /a/cluster/kubelet/x tmpfs rw 0 0\n\
                     tmpfs /a/cluster-2/x tmpfs rw 0 0\ntmpfs /a/cluster tmpfs rw 0 0\n";
        assert_eq!(mounts_below_in(Path::new("/a/cluster"), table), [PathBuf::from("/a/cluster/kubelet/x")]);
    }
}
