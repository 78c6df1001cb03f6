//! Documents of the original: each is read, and written back byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may state what it expects and stop")]

mod original;
