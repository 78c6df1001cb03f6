//! Upstreams over real sockets, in front of servers that respond as tests say.

#[cfg(test)]
mod bridge;
#[cfg(test)]
mod eras;
#[cfg(test)]
mod http;
#[cfg(test)]
mod http_sse;
#[cfg(test)]
mod server;
