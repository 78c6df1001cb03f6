//! The properties of this machine, and Debian's packages for what it lacks.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::program::{capture, is_installed};
use crate::ui;

/// Whether this is Linux and we are root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Whether packages can be installed without a prompt.
pub(crate) fn can_install() -> bool {
    is_root() && is_installed("apt-get")
}

/// Installs Debian packages. The lists are refreshed only when the first try fails.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if !can_install() {
        bail!("these packages are missing and only root on a Debian-like system can have them installed: {names}");
    }
    ui::progress(&format!("installing {names}…"));
    let install = || {
        capture(
            Command::new("apt-get")
                .args(["install", "--yes", "--quiet", "--no-install-recommends"])
                .args(packages)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    };
    if install().is_err() {
        capture(Command::new("apt-get").args(["update", "--quiet"])).context("cannot refresh the package lists")?;
        install().with_context(|| format!("cannot install {names}"))?;
    }
    Ok(())
}

/// The processor as Rust's targets and as container images name it.
pub(crate) struct Processor {
    pub(crate) rust: &'static str,
    pub(crate) image: &'static str,
}

/// The processor of this machine, if images can be built for it.
pub(crate) fn processor() -> Result<Processor> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(Processor { rust: "x86_64", image: "amd64" }),
        "aarch64" => Ok(Processor { rust: "aarch64", image: "arm64" }),
        other => bail!("no image can be built on `{other}`: use an x86_64 or aarch64 machine"),
    }
}
