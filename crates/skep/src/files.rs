//! Manifests on this machine: files, directories, standard input.

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
    paths.iter().flat_map(|path| read_path(path)).collect()
}

fn read_path(path: &Path) -> Vec<Source> {
    if path.as_os_str() == "-" {
        return vec![Source::new(path, Ok(io::stdin()))];
    }
    if !path.is_dir() {
        return vec![Source::new(path, File::open(path))];
    }
    match manifests_in(path) {
        Err(error) => vec![Source::new(path, Err::<File, _>(error))],
        Ok(files) if files.is_empty() => {
            let problem = "the directory holds no *.yaml, *.yml or *.json file";
            vec![Source { file: path.display().to_string(), text: Err(problem.to_owned()) }]
        }
        Ok(files) => files.iter().map(|file| Source::new(file, File::open(file))).collect(),
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
