//! The server and the client against real sockets on loopback.

#[cfg(test)]
mod client;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod serve;
#[cfg(test)]
mod stalled;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tls;
