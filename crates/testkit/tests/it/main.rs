//! A control plane starts, keeps its tests and users apart, can be broken, and leaves nothing behind.

mod access;
mod faults;
mod teardown;
