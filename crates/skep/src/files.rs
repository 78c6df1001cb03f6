//! Manifests on this machine: files, directories, standard input.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use skep_bounds::MANIFEST_BYTES;

/// A text and its origin; or why it cannot be read. An unreadable one hides none of the others.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path, as it was given.
    pub(crate) file: String,
    /// Its text, or the error.
    pub(crate) text: Result<String, String>,
}

/// The texts of files, directories and standard input, directories sorted by file name.
pub(crate) fn read_all(paths: &[PathBuf]) -> Vec<Source> {
    let mut seen = BTreeSet::new();
    let mut files: Vec<PathBuf> = Vec::new();
    let mut sources = Vec::new();
    for path in paths {
        match files_of(path) {
            Ok(found) => files.extend(found),
            Err(source) => sources.push(source),
        }
    }
    // A file that is named twice, by itself and by its directory, is one file.
    files.retain(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())));
    let open = |file: &PathBuf| {
        if file.as_os_str() == "-" { Source::new(file, Ok(io::stdin())) } else { Source::new(file, File::open(file)) }
    };
    sources.extend(files.iter().map(open));
    sources
}

/// The files that a path names, standard input among them; or why there are none.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Source> {
    if path.as_os_str() == "-" || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    match manifests_in(path) {
        Err(error) => Err(Source::new(path, Err::<File, _>(error))),
        Ok(files) if files.is_empty() => {
            let problem = "the directory holds no *.yaml, *.yml or *.json file";
            Err(Source { file: path.display().to_string(), text: Err(problem.to_owned()) })
        }
        Ok(files) => Ok(files),
    }
}

fn manifests_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_manifest =
            path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml" || ending == "json");
        // A link that leads nowhere is reported when it is opened.
        if is_manifest && !path.is_dir() && (path.is_file() || path.is_symlink()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

// === impl Source ===

impl Source {
    fn new(path: &Path, opened: io::Result<impl Read>) -> Self {
        let text = opened.and_then(read).map_err(|error| error.to_string()).and_then(|bytes| {
            // A truncated text may end in the middle of a character.
            if bytes.len() > MANIFEST_BYTES {
                return Err(format!("it has more than {MANIFEST_BYTES} bytes; shorten or split it"));
            }
            String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
        });
        Self { file: path.display().to_string(), text }
    }
}

/// Reads at most one byte more than the limit for a manifest file: a device or a pipe has no end.
fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MANIFEST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has no end, and counts what is read of it.
    struct Endless(usize);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'a');
            self.0 += buffer.len();
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_file_that_is_named_twice_is_read_once_and_a_broken_link_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        std::fs::write(&file, "a: 1").unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("b.yaml")).unwrap();
        std::fs::create_dir(directory.path().join("c.yaml")).unwrap();
        let sources = read_all(&[directory.path().to_owned(), file.clone(), directory.path().to_owned()]);
        let read: Vec<_> = sources.iter().map(|source| (source.file.as_str(), source.text.is_ok())).collect();
        let broken = directory.path().join("b.yaml");
        let broken = broken.to_str().unwrap();
        assert_eq!(read, [(file.to_str().unwrap(), true), (broken, false)]);
    }

    #[test]
    fn endless_input_is_read_up_to_the_limit() {
        let mut endless = Endless(0);
        let source = Source::new(Path::new("endless"), Ok(&mut endless));
        assert_eq!(source.text.unwrap_err(), "it has more than 16777216 bytes; shorten or split it");
        assert_eq!(endless.0, MANIFEST_BYTES + 1);
        let source = Source::new(Path::new("largest"), Ok(io::repeat(b'a').take(MANIFEST_BYTES as u64)));
        assert_eq!(source.text.unwrap().len(), MANIFEST_BYTES);
        assert_eq!(Source::new(Path::new("bytes"), Ok([0xff_u8].as_slice())).text.unwrap_err(), "it is not UTF-8 text");
    }
}
