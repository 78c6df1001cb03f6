//! Cursors: where the next page of a list begins, sealed so that clients can only send back what they were given.
//!
//! A cursor names the last element that was sent. So it holds on every replica, and when elements come and go in between: each that stays is
//! sent once.

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use skep_mcp::list::List;

/// How many bytes of the seal are kept.
const SEAL: usize = 16;
/// The longest cursor that is read, in characters.
const LONGEST: usize = 16 * 1024;

/// Seals and opens cursors.
#[derive(Debug)]
pub struct Cursors(hmac::Key);

/// A cursor that was not made here, or for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor")]
pub struct CursorError;

// === impl Cursors ===

impl Cursors {
    /// Cursors under a key, which replicas share.
    pub fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The cursor behind an element.
    pub fn seal(&self, list: List, key: &str) -> String {
        let mut text = self.tag(list, key).to_vec();
        text.extend_from_slice(key.as_bytes());
        URL_SAFE_NO_PAD.encode(text)
    }

    /// The element that a cursor stands behind.
    pub fn open(&self, list: List, cursor: &str) -> Result<String, CursorError> {
        if cursor.len() > LONGEST {
            return Err(CursorError);
        }
        let text = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError)?;
        let (tag, key) = text.split_at_checked(SEAL).ok_or(CursorError)?;
        let key = std::str::from_utf8(key).map_err(|_| CursorError)?;
        constant_time::verify_slices_are_equal(tag, &self.tag(list, key)).map_err(|_| CursorError)?;
        Ok(key.to_owned())
    }

    fn tag(&self, list: List, key: &str) -> [u8; SEAL] {
        let signed = hmac::sign(&self.0, format!("{}\0{key}", list.method()).as_bytes());
        let mut tag = [0; SEAL];
        for (to, from) in tag.iter_mut().zip(signed.as_ref()) {
            *to = *from;
        }
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_for_its_list_and_no_client_makes_one() {
        let cursors = Cursors::new(b"key");
        let cursor = cursors.seal(List::Tools, "größe");
        assert_eq!(cursors.open(List::Tools, &cursor).as_deref(), Ok("größe"));
        assert_eq!(cursors.open(List::Prompts, &cursor), Err(CursorError));
        assert_eq!(Cursors::new(b"other").open(List::Tools, &cursor), Err(CursorError));
        let forged = URL_SAFE_NO_PAD.encode([&[0; SEAL][..], b"a"].concat());
        for wrong in ["", "a", "ü", &forged, &"A".repeat(LONGEST + 1)] {
            assert_eq!(cursors.open(List::Tools, wrong), Err(CursorError), "{wrong}");
        }
    }
}
