//! Running the server behind a proxy: as a StatefulSet in a cluster ([`cluster`]), whose pods are reached by their Service or by
//! their standard input and output ([`attach`], over a connection of its own make, [`client`]), or as a process on this machine ([`process`]), which ends
//! with the program that started it ([`watchdog`]).
//!
//! What is applied is made by pure functions ([`objects`]); whose word counts when two proxies apply the same server is decided
//! by another one ([`gate`]).

pub mod attach;
pub mod client;
pub mod cluster;
pub mod gate;
pub mod objects;
pub mod pauses;
pub mod pipe;
pub mod process;
pub mod report;
pub mod server;
pub mod watchdog;
