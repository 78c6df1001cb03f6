//! The suite, the SDK of the fixture and the Node that runs them, as npm installs them, in the target directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program::capture;
use crate::{host, root, target_dir, ui};

/// The Node that runs everything: newer suites need a newer one than systems have.
const NODE: &str = "24.21.0";

/// Where everything is.
pub(super) struct Installed {
    directory: PathBuf,
    node: String,
}

// === impl Installed ===

impl Installed {
    pub(super) fn node(&self) -> PathBuf {
        self.modules().join(&self.node).join("bin/node")
    }

    /// All paths, for processes that see this machine's files.
    pub(super) fn directory(&self) -> PathBuf {
        self.directory.clone()
    }

    pub(super) fn fixture(&self) -> PathBuf {
        self.directory.join("fixture.mjs")
    }

    pub(super) fn suite(&self, package: &str) -> PathBuf {
        self.modules().join(package).join("dist/index.js")
    }

    pub(super) fn results(&self) -> PathBuf {
        self.directory.join("results")
    }

    fn modules(&self) -> PathBuf {
        self.directory.join("node_modules")
    }
}

/// Installs what is not installed yet. A fixture finds its modules beside itself, so it is copied to them.
pub(super) fn install() -> Result<Installed> {
    let sources = root().join("xtask/conformance");
    let directory = target_dir()?.join("conformance");
    let processor = if host::processor()?.image == "arm64" { "arm64" } else { "x64" };
    let installed = Installed { directory, node: format!("node-linux-{processor}") };
    fs::create_dir_all(&installed.directory)?;
    for entry in fs::read_dir(&sources)? {
        let name = entry?.file_name();
        fs::copy(sources.join(&name), installed.directory.join(&name))?;
    }
    let wanted = format!("{}{NODE}", fs::read_to_string(sources.join("package.json"))?);
    let stamp = installed.directory.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && installed.node().is_file() {
        return Ok(installed);
    }
    ui::progress("installing the suite, the SDK and Node…");
    npm(&installed.directory, &format!("{}@{NODE}", installed.node))?;
    fs::write(stamp, wanted)?;
    Ok(installed)
}

fn npm(directory: &Path, node: &str) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", node]).current_dir(directory);
    capture(&mut npm).context("cannot install the suite; is npm installed?").map(drop)
}
