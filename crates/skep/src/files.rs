//! Manifests on this machine: files, directories of them, standard input.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// A text and where it comes from; or why it cannot be read. One that cannot be read hides none of the others.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path, as it was given.
    pub(crate) file: String,
    /// Its text, or what is wrong with it.
    pub(crate) text: Result<String, String>,
}

/// The texts of files, directories and standard input, directories in the order of their names.
pub(crate) fn read_all(paths: &[PathBuf]) -> Vec<Source> {
    paths.iter().flat_map(|path| read_path(path)).collect()
}

fn read_path(path: &Path) -> Vec<Source> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = io::stdin().read_to_end(&mut bytes).map(|_| bytes);
        return vec![Source::new(path, read)];
    }
    if !path.is_dir() {
        return vec![Source::new(path, std::fs::read(path))];
    }
    match manifests_in(path) {
        Err(error) => vec![Source::new(path, Err(error))],
        Ok(files) if files.is_empty() => {
            let problem = "the directory holds no *.yaml, *.yml or *.json file";
            vec![Source { file: path.display().to_string(), text: Err(problem.to_owned()) }]
        }
        Ok(files) => files.iter().map(|file| Source::new(file, std::fs::read(file))).collect(),
    }
}

fn manifests_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_manifest =
            path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

// === impl Source ===

impl Source {
    fn new(path: &Path, read: io::Result<Vec<u8>>) -> Self {
        let text = read
            .map_err(|error| error.to_string())
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not a text in UTF-8".to_owned()));
        Self { file: path.display().to_string(), text }
    }
}
