//! Servers on a real API server.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod race;
#[cfg(test)]
mod report;
#[cfg(test)]
mod support;
#[cfg(test)]
mod watch;
