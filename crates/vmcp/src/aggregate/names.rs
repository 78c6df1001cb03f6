//! Names that fit the limits of clients, and that no two things share.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The longest name that is made here, in bytes. Many clients refuse tools with longer names.
pub(super) const LONGEST: usize = 64;
/// How many hexadecimal digits tell two names apart.
const DIGITS: usize = 8;

/// A name that was put together, cut so that it fits. The end of a long one is a digest, so two long names stay two.
pub(super) fn fit(name: String) -> String {
    if name.len() <= LONGEST {
        return name;
    }
    marked(&name, &digest(&name))
}

/// A name for something whose own name is taken.
pub(super) fn distinct<T>(taken: &BTreeMap<Box<str>, T>, name: &str, backend: &str, original: &str) -> Option<String> {
    let digest = digest(&format!("{backend}\0{original}"));
    let name = marked(name, &digest);
    (!taken.contains_key(name.as_str())).then_some(name)
}

/// The start of a name, and a mark at its end.
fn marked(name: &str, mark: &str) -> String {
    format!("{}_{mark}", kept(name))
}

/// How much of the start of a name is kept however long the name is.
pub(super) fn kept(name: &str) -> &str {
    name.get(..name.floor_char_boundary(LONGEST - 1 - DIGITS)).unwrap_or(name)
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bytes = digest.iter().take(DIGITS / 2);
    bytes.fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}
