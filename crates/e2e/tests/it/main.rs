//! Tests on real pods. They need a cluster with our images in it: `cargo xtask e2e` provides both.

mod cluster;
mod faults;
mod guarded;
mod guards;
mod home;
mod operator;
mod provider;
mod proxy;
mod smoke;
mod status;
mod tenants;
mod uninstall;
mod virtual_server;
