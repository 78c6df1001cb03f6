//! The guarantees of both stores, and the failures of Redis.

#[cfg(test)]
mod buckets;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod server;
