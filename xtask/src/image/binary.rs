//! A program that needs nothing but a kernel: linked statically against musl, or against glibc where musl is not to be
//! had.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::order;
use crate::program::{self, capture, cargo, is_installed};
use crate::{host, root, target_dir, ui};

/// Every start reads the table of relocations, and so keeps it in memory: packed, it is 50 times smaller. musl reads such a
/// table since 1.2.4, and Rust brings a newer one; a linker that does not know the option says so and goes on.
const PACKED: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";
/// Symbol names that include the type arguments; the older mangling gives all instances of a generic function one name.
const NAMES: &str = "-Csymbol-mangling-version=v0";

/// A binary of this workspace, to be linked statically.
pub(crate) struct Binary<'a> {
    /// The package it is in.
    pub(crate) package: &'a str,
    /// Its own name.
    pub(crate) name: &'a str,
    /// The cargo profile.
    pub(crate) profile: &'a str,
    /// Whether it keeps the names of its functions, which a profile may strip.
    keeps_symbols: bool,
    /// The file that lists its functions in the order to link them in.
    pub(super) order: Option<PathBuf>,
}

/// How to link statically on this machine.
struct Linkage {
    target: String,
    flags: &'static [&'static str],
}

impl<'a> Binary<'a> {
    /// The product.
    pub(crate) const fn skep(profile: &'a str) -> Self {
        Self { package: "skep", name: "skep", profile, keeps_symbols: false, order: None }
    }

    /// What end-to-end tests put into pods.
    pub(crate) const fn fixture() -> Self {
        Self { package: "skep-e2e", name: "skep-fixture", profile: "release", keeps_symbols: false, order: None }
    }

    /// The same with the names of its functions.
    pub(crate) fn with_symbols(self) -> Self {
        Self { keeps_symbols: true, ..self }
    }

    /// Builds it and returns where it is.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let linkage = Linkage::choose()?;
        let Self { package, name, profile, keeps_symbols, order } = self;
        let arguments = ["build", "--package", package, "--bin", name, "--profile", profile, "--target"];
        let mut command = cargo();
        command.args(arguments).arg(&linkage.target);
        let mut flags = linkage.flags.to_vec();
        if *keeps_symbols || order.is_some() {
            flags.push(NAMES);
        }
        if *keeps_symbols {
            command.args(["--config", &format!("profile.{profile}.strip=\"none\"")]);
        }
        command.env_remove(order::VARIABLE);
        if let Some(file) = order {
            flags.push(order::FLAG);
            order::link_with(&mut command, file)?;
        }
        command.env("CARGO_ENCODED_RUSTFLAGS", encoded(&flags));
        program::build(&format!("building {name} for {} with profile {profile}", linkage.target), &mut command)?;
        // Cargo names the directory of one profile differently, for the sake of its oldest users.
        let directory = if *profile == "dev" { "debug" } else { profile };
        let path = target_dir()?.join(&linkage.target).join(directory).join(name);
        if !path.is_file() {
            bail!("cargo built `{name}`, but not where it was expected: `{}`", path.display());
        }
        Ok(path)
    }
}

impl Linkage {
    fn choose() -> Result<Self> {
        let processor = host::processor()?.rust;
        let musl = format!("{processor}-unknown-linux-musl");
        match have_target(&musl).and_then(|()| have_musl_compiler()) {
            Ok(()) => Ok(Self { target: musl, flags: &[PACKED] }),
            Err(error) => {
                ui::progress(&format!("no `{musl}` here ({error:#}): linking statically against glibc instead"));
                let target = format!("{processor}-unknown-linux-gnu");
                have_target(&target)?;
                Ok(Self { target, flags: &["-Ctarget-feature=+crt-static"] })
            }
        }
    }
}

/// Compiler flags as cargo wants them in its environment. Paths of this machine are replaced, so that the same
/// sources give the same binary in any directory.
fn encoded(flags: &[&str]) -> String {
    let mut flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
    flags.push(format!("--remap-path-prefix={}=/skep", root().display()));
    if let Some(home) = cargo_home() {
        flags.push(format!("--remap-path-prefix={}=/cargo", home.display()));
    }
    flags.join("\u{1f}")
}

/// Makes sure that Rust's own library is here for a target.
fn have_target(target: &str) -> Result<()> {
    let sysroot = capture(Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()))?;
    if Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib").is_dir() {
        return Ok(());
    }
    if !is_installed("rustup") {
        bail!("the Rust toolchain has no `{target}` and there is no rustup to add it");
    }
    ui::progress(&format!("adding the target {target} to the Rust toolchain…"));
    capture(Command::new("rustup").args(["target", "add", target]).current_dir(root())).map(drop)
}

/// Makes sure that there is a C compiler for musl: the cryptography is partly C.
fn have_musl_compiler() -> Result<()> {
    if is_installed("musl-gcc") {
        return Ok(());
    }
    host::install(&["musl-tools"])
}

fn cargo_home() -> Option<PathBuf> {
    let given = std::env::var_os("CARGO_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    given.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}
