//! What a user of templates relies on: what Go makes of them, what an error says, and that none of them does harm.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may state what it expects and stop"
)]

mod errors;
mod golden;
mod hostile;
