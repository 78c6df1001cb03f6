//! Manifests on this machine: files, directories of them, standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

/// The texts and where each comes from, directories in the order of their names.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<(String, String)>> {
    let mut texts = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            texts.push(("-".to_owned(), text));
        } else if path.is_dir() {
            let files = manifests_in(path)?;
            if files.is_empty() {
                return Err(anyhow!("the directory `{}` holds no *.yaml, *.yml or *.json file", path.display()));
            }
            for file in files {
                texts.push(read(&file)?);
            }
        } else {
            texts.push(read(path)?);
        }
    }
    Ok(texts)
}

fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the directory `{}`", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let is_manifest =
            path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<(String, String)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok((path.display().to_string(), text))
}
