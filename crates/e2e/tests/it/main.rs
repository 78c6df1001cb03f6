//! Tests on real pods. They need a cluster with our images in it: `cargo xtask e2e` provides both.

mod cluster;
mod faults;
mod guarded;
mod home;
mod operator;
mod proxy;
mod smoke;
mod status;
mod tenants;
mod uninstall;
