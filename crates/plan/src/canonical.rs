//! One text and one hash for one value: canonical JSON, and the checksums that are written on objects.
//!
//! `serde_json` sorts the members of an object or does not, by a feature that any crate can switch on; a hash of its text
//! would differ between a test and the shipped binary. Everything that is hashed or compared as text goes through here.
//! The checksums are those of the system whose objects these are, so that its operator and ours agree on a ConfigMap.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};
use skep_runconfig::json;

/// The annotation of a ConfigMap that holds the checksum of its content.
pub const CONTENT_CHECKSUM: &str = "toolhive.stacklok.dev/content-checksum";

/// A value as JSON on one line, its members sorted by name.
pub fn to_string(value: &Value) -> String {
    json::sorted(value)
}

/// The hash of a value that does not depend on the order of its members, such as a `podTemplateSpec`.
pub fn value_hash(value: &Value) -> String {
    sha256_hex(to_string(value).as_bytes())
}

/// SHA-256 in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// FNV-1a of 32 bits in hexadecimal, without leading zeros.
pub fn fnv32a_hex(bytes: &[u8]) -> String {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let hash = bytes.iter().fold(BASIS, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:x}")
}

/// The short hash of a text in the names of volumes and files. It covers the text's type as well, as Go prints it.
pub fn text_hash(text: &str) -> String {
    fnv32a_hex(format!("(string){text}").as_bytes())
}

/// The checksum of a ConfigMap: its data, its labels, and its annotations but the one that holds the checksum.
pub fn content_checksum(
    data: &BTreeMap<String, String>,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> String {
    let annotations = annotations.iter().filter(|(name, _)| *name != CONTENT_CHECKSUM);
    let mut hash = Sha256::new();
    for (name, value) in data.iter().chain(labels).chain(annotations) {
        hash.update(name);
        hash.update(value);
    }
    hex(&hash.finalize())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A value as JSON of which only the size is used, which no order of members changes.
pub(crate) fn encoded(value: &impl serde::Serialize) -> String {
    #[expect(clippy::disallowed_methods, reason = "only the size is used, which no order changes")]
    let encoded = serde_json::to_string(value);
    encoded.unwrap_or_default()
}

#[cfg(test)]
mod tests;
