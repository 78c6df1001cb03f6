//! Tests of the definitions: against the compatibility table, and on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may state what it expects and stop"
)]

mod compat;
mod plane;
mod rules;
mod server;
mod types;
