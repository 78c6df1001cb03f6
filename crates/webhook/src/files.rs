//! The files of a webhook: bounded, and read again when they were replaced.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use skep_net::tls::{Identity, Roots, Trust};

use crate::config::{SigningKey, TlsFiles};

/// The largest file, in bytes.
const MOST: u64 = 1024 * 1024;

/// Files that are in memory only, by their paths: a proxy without a pod gets its secrets like this, so that they are on no disk.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MemoryFiles(Arc<BTreeMap<PathBuf, Bytes>>);

impl FromIterator<(PathBuf, Bytes)> for MemoryFiles {
    fn from_iter<I: IntoIterator<Item = (PathBuf, Bytes)>>(files: I) -> Self {
        Self(Arc::new(files.into_iter().collect()))
    }
}

/// Without what is in them.
impl fmt::Debug for MemoryFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.0.keys()).finish()
    }
}

/// Which files there were: two are equal if no file was replaced in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<(u64, i64, i64, u64)>>);

impl Stamp {
    /// The files as they are now.
    pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Self {
        let one = |path: &PathBuf| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len()))
        };
        Self(paths.map(one).collect())
    }
}

/// Which servers are trusted, and our certificate.
pub(crate) fn read_tls(files: &TlsFiles, memory: &MemoryFiles) -> Result<(Trust, Option<Identity>), String> {
    let trust = match &files.ca_bundle {
        _ if files.insecure_skip_verify => Trust::DangerouslyAnyone,
        None => Trust::System,
        Some(path) => {
            let roots = Roots::from_pem(&read(path, memory)?);
            Trust::Roots(roots.map_err(|error| format!("`{}`: {error}", path.display()))?)
        }
    };
    let Some((certificate, key)) = &files.client else { return Ok((trust, None)) };
    let identity = Identity::from_pem(&read(certificate, memory)?, &read(key, memory)?);
    let named = |error| format!("`{}` and `{}`: {error}", certificate.display(), key.display());
    Ok((trust, Some(identity.map_err(named)?)))
}

/// The bytes of a key. An empty key would sign, and prove nothing.
pub(crate) fn read_key(key: &SigningKey, memory: &MemoryFiles) -> Result<Bytes, String> {
    let (bytes, place) = match key {
        SigningKey::Value(value) => return Ok(Bytes::copy_from_slice(value.expose().as_bytes())),
        SigningKey::File(path) => (read(path, memory)?, path.display()),
    };
    if bytes.is_empty() { Err(format!("the key in `{place}` is empty")) } else { Ok(bytes) }
}

fn read(path: &Path, memory: &MemoryFiles) -> Result<Bytes, String> {
    if let Some(bytes) = memory.0.get(path) {
        return Ok(bytes.clone());
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("cannot read `{}`: {error}", path.display())),
        Ok(length) if length as u64 > MOST => Err(format!("`{}` has more than {MOST} bytes", path.display())),
        Ok(_) => Ok(bytes.into()),
    }
}
