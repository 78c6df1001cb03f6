//! `cargo xtask arch`: the architecture rules that neither the compiler nor clippy checks.
//!
//! - [`arrows`]: which crate may use which;
//! - [`purity`]: what pure crates are built from, and that clippy holds them to the rules of `pure.clippy.toml`;
//! - [`size`]: how long files and functions of the data plane may be;
//! - [`text`]: what no source may contain.
//!
//! What a source may not call is in `clippy.toml`. That the operator's RBAC suffices is tested on an API server, in
//! `crates/operator/tests/it/permissions.rs`.
//!
//! Every rule is a function from text to complaints. All complaints are shown, not only the first.

mod arrows;
mod purity;
mod size;
mod text;

use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::program::{capture, cargo, metadata};
use crate::{root, ui};

/// A file of the repository.
struct Source {
    path: String,
    text: String,
}

pub(crate) fn run() -> Result<()> {
    let sources = sources()?;
    let packages = arrows::packages(&metadata()?)?;
    let mut complaints = arrows::check(&packages);
    for package in &packages {
        if purity::is_pure(&package.name) {
            let tree = cargo_tree(&package.name)?;
            complaints.extend(purity::check_dependencies(&package.name, &tree));
        }
    }
    let home = std::env::home_dir().map(|home| home.display().to_string());
    let here = root().display().to_string();
    let private: Vec<&str> = [Some(here.as_str()), home.as_deref()].into_iter().flatten().collect();
    complaints.extend(purity::check_configuration(|path| {
        sources.iter().find(|source| source.path == path).map(|source| source.text.as_str())
    }));
    for Source { path, text } in &sources {
        complaints.extend(text::check(path, text, &private));
        complaints.extend(size::check(path, text));
    }
    for complaint in &complaints {
        ui::progress(complaint);
    }
    if !complaints.is_empty() {
        bail!("{} rules of the architecture are broken; see above", complaints.len());
    }
    ui::progress(&format!("{} crates and {} files keep the rules", packages.len(), sources.len()));
    Ok(())
}

/// Every text file that is, or is about to be, in the repository.
fn sources() -> Result<Vec<Source>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let list = capture(&mut git).context("cannot list the files of the repository")?;
    let mut sources = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        // An unreadable file is deleted but still in git's index, or a link to a directory; a file that is not UTF-8 is
        // binary.
        let text = fs::read(root().join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        sources.extend(text.map(|text| Source { path: path.to_owned(), text }));
    }
    Ok(sources)
}

/// The names of everything that a crate is built from, when it is built alone.
fn cargo_tree(package: &str) -> Result<String> {
    capture(cargo().args(["tree", "--package", package, "--edges=normal", "--prefix=none", "--format={p}"]))
}
