//! Servers on a real API server.

#[cfg(test)]
mod cluster;
