//! Laws of planning, for any resource and any world.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may state what it expects and stop"
)]

mod addresses;
mod kinds;
mod laws;
mod proxies;
mod stamps;
mod status;
mod takeover;
