//! What both stores promise, and what only Redis can break.

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
