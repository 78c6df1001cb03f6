//! Writes the generated files into the repository.
//!
//! Each generated file is a function from code to text and one line in [`files`]. CI runs the same functions and fails
//! when a file in the repository differs.

mod reference;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::{root, ui};

/// Where the definitions of the CRD chart are. Nothing else may be in there.
const DEFINITIONS: &str = "charts/skep-crds/files/crds";

/// Writes every generated file; with `check`, changes nothing and fails when one is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let files = files()?;
    let stale = stale(&root(), &files)?;
    if check {
        if !stale.is_empty() {
            let names: Vec<_> = stale.iter().map(|path| format!("  {}", path.display())).collect();
            bail!(
                "generated files are out of date; run `cargo xtask gen` and commit the result:\n{}",
                names.join("\n")
            );
        }
        return Ok(());
    }
    for path in &stale {
        let full = root().join(path);
        match files.get(path) {
            Some(text) => write(&full, text)?,
            None => fs::remove_file(&full).with_context(|| format!("cannot remove `{}`", path.display()))?,
        }
        ui::result(&format!("{} {}", if files.contains_key(path) { "wrote" } else { "removed" }, path.display()));
    }
    Ok(())
}

/// Every generated file and what must be in it.
fn files() -> Result<BTreeMap<PathBuf, String>> {
    let mut files = BTreeMap::new();
    let definitions = skep_api::crd::all()?;
    for definition in &definitions {
        let path = Path::new(DEFINITIONS).join(format!("{}.yaml", definition.spec.names.plural));
        files.insert(path, skep_api::manifest::document(definition)?);
    }
    files.insert("docs/api.md".into(), reference::page(&definitions)?);
    files.insert("charts/skep/templates/_rbac.tpl".into(), skep_operator::rbac::helm_template());
    Ok(files)
}

/// The files that are missing, differ, or should not be there.
fn stale(root: &Path, files: &BTreeMap<PathBuf, String>) -> Result<Vec<PathBuf>> {
    let differs = |(path, text): &(&PathBuf, &String)| fs::read_to_string(root.join(path)).ok().as_ref() != Some(*text);
    let mut stale: Vec<PathBuf> = files.iter().filter(differs).map(|(path, _)| path.clone()).collect();
    if let Ok(entries) = fs::read_dir(root.join(DEFINITIONS)) {
        for entry in entries {
            let path = Path::new(DEFINITIONS).join(entry?.file_name());
            if !files.contains_key(&path) {
                stale.push(path);
            }
        }
    }
    Ok(stale)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write `{}`", path.display());
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(failed)?;
    }
    fs::write(path, text).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_different_or_leftover_file_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let definition = |name: &str| Path::new(DEFINITIONS).join(name);
        let files: BTreeMap<PathBuf, String> =
            ["same", "differs", "missing"].map(|name| (definition(name), name.to_owned())).into();
        write(&directory.path().join(definition("same")), "same").unwrap();
        write(&directory.path().join(definition("differs")), "other").unwrap();
        write(&directory.path().join(definition("left-over")), "").unwrap();
        let expected = ["differs", "missing", "left-over"].map(definition);
        assert_eq!(stale(directory.path(), &files).unwrap(), expected);
    }
}
