//! Cursors: where the next page of a list begins, sealed so that clients can neither read nor make one.
//!
//! A cursor names the last element of a page, which a policy may hide from the client: so it is encrypted, and padded so that its length says
//! little. It holds on every replica, and when elements come and go in between: each that stays is sent once.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use skep_mcp::list::List;

/// What tells the key of cursors from any other use of the same secret.
const PURPOSE: &[u8] = b"skep list cursor 1\0";
/// The longest cursor that is read, in characters.
const LONGEST: usize = 16 * 1024;
/// Sealed texts have a multiple of this many bytes. Most names, which have at most 64, fit into two.
const BLOCK: usize = 64;
/// What stands between a text and its padding, as in ISO/IEC 7816-4.
const END: u8 = 0x80;

/// Seals and opens cursors.
#[derive(Debug)]
pub struct Cursors(Option<RandomizedNonceKey>);

/// A cursor that was not made here, or for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor")]
pub struct CursorError;

// === impl Cursors ===

impl Cursors {
    /// Cursors under a secret, which replicas share.
    pub fn new(secret: &[u8]) -> Self {
        let key = digest(&SHA256, &[PURPOSE, secret].concat());
        // The key has the length that the algorithm wants.
        Self(RandomizedNonceKey::new(&AES_256_GCM_SIV, key.as_ref()).ok())
    }

    /// The cursor behind an element. Nothing if it cannot be sealed.
    pub fn seal(&self, list: List, key: &str) -> Option<String> {
        let mut text = padded(key);
        let nonce = self.0.as_ref()?.seal_in_place_append_tag(Aad::from(list.method()), &mut text).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce.as_ref()[..], &text].concat()))
    }

    /// The element that a cursor stands behind.
    pub fn open(&self, list: List, cursor: &str) -> Result<String, CursorError> {
        if cursor.len() > LONGEST {
            return Err(CursorError);
        }
        let mut sealed = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError)?;
        let (nonce, text) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(CursorError)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| CursorError)?;
        let aead = self.0.as_ref().ok_or(CursorError)?;
        let text = aead.open_in_place(nonce, Aad::from(list.method()), text).map_err(|_| CursorError)?;
        let end = text.iter().rposition(|byte| *byte == END).ok_or(CursorError)?;
        let key = text.get(..end).and_then(|key| std::str::from_utf8(key).ok());
        key.map(str::to_owned).ok_or(CursorError)
    }
}

fn padded(key: &str) -> Vec<u8> {
    let mut text = key.as_bytes().to_vec();
    text.push(END);
    text.resize(text.len().next_multiple_of(BLOCK), 0);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_for_its_list_and_no_client_makes_one() {
        let cursors = Cursors::new(b"key");
        for key in ["größe", "", "\u{80}", "a\0\0", &"k".repeat(BLOCK), &"long ".repeat(1000)] {
            let cursor = cursors.seal(List::Tools, key).unwrap();
            assert_eq!(cursors.open(List::Tools, &cursor).as_deref(), Ok(key));
            assert_eq!(Cursors::new(b"key").open(List::Tools, &cursor).as_deref(), Ok(key), "another replica");
            assert_eq!(cursors.open(List::Prompts, &cursor), Err(CursorError));
            assert_eq!(Cursors::new(b"other").open(List::Tools, &cursor), Err(CursorError));
        }
        let forged = URL_SAFE_NO_PAD.encode([&[0; NONCE_LEN][..], &[0; 2 * BLOCK]].concat());
        for wrong in ["", "a", "ü", &forged, &"A".repeat(LONGEST + 1)] {
            assert_eq!(cursors.open(List::Tools, wrong), Err(CursorError), "{wrong}");
        }
    }

    #[test]
    fn a_cursor_reveals_neither_the_name_nor_its_length() {
        let cursors = Cursors::new(b"key");
        let sealed = |name: &str| URL_SAFE_NO_PAD.decode(cursors.seal(List::Tools, name).unwrap()).unwrap();
        let (short, long) = (sealed("drop"), sealed("drop_all_the_tables"));
        assert_eq!(short.len(), long.len());
        for (sealed, name) in [(&short, "drop"), (&long, "drop_all_the_tables")] {
            assert!(!sealed.windows(name.len()).any(|part| part == name.as_bytes()), "{name}");
        }
        assert_ne!(short, sealed("drop"), "pages of two clients cannot be compared");
    }
}
