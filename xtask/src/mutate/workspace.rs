//! The copy of the workspace that is changed and built. The working tree stays as it is, and may be edited meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::program::capture;
use crate::root;

/// Where the copy is built, below it.
const BUILD: &str = "target";

/// Files that have another text than in the workspace.
pub(super) type Texts = BTreeMap<PathBuf, String>;

/// What git knows of the workspace, as it was at the start, and a directory with a copy of it.
pub(super) struct Workspace {
    copy: PathBuf,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

// === impl Workspace ===

impl Workspace {
    /// Reads the files. Writes none yet.
    pub(super) fn read(copy: PathBuf) -> Result<Self> {
        let listed = capture(
            Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root()),
        )?;
        let content = |file: &str| Some((PathBuf::from(file), fs::read(root().join(file)).ok()?));
        Ok(Self { copy, files: listed.lines().filter_map(content).collect() })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.copy
    }

    /// Where what is built goes.
    pub(super) fn target(&self) -> PathBuf {
        self.copy.join(BUILD)
    }

    /// The text of a file.
    pub(super) fn text(&self, file: &Path) -> String {
        self.files.get(file).map(|content| String::from_utf8_lossy(content).into_owned()).unwrap_or_default()
    }

    /// Makes the copy the same as the workspace, but for the files that have another text.
    pub(super) fn write(&self, changed: &Texts) -> Result<()> {
        let mut kept = BTreeSet::new();
        for (file, content) in &self.files {
            let content = changed.get(file).map_or(content.as_slice(), String::as_bytes);
            let path = self.copy.join(file);
            write(&path, content)?;
            kept.insert(path);
        }
        remove_others(&self.copy, &kept, &self.target())
    }
}

/// Writes a file. What is the same stays, so that only what changed is built again.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|known| known == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, content)?)
}

/// Removes the files of a directory that are not to be kept: those that were moved or deleted since the last copy.
fn remove_others(directory: &Path, kept: &BTreeSet<PathBuf>, except: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if path != except {
                remove_others(&path, kept, except)?;
            }
        } else if !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_what_changed_and_nothing_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["kept.rs", "moved/old.rs", "target/built"] {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), "").unwrap();
        }
        let files = [("kept.rs".into(), b"one".to_vec()), ("new/two.rs".into(), b"two".to_vec())];
        let workspace = Workspace { copy: directory.path().to_owned(), files: files.into() };
        workspace.write(&[("kept.rs".into(), "changed".to_owned())].into()).unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).ok();
        assert_eq!(read("kept.rs").as_deref(), Some("changed"));
        assert_eq!(read("new/two.rs").as_deref(), Some("two"));
        assert!(path("target/built").exists() && !path("moved/old.rs").exists());
        workspace.write(&Texts::new()).unwrap();
        assert_eq!(read("kept.rs").as_deref(), Some("one"));
    }
}
