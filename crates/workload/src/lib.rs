//! Running the MCP server of a proxy: as a StatefulSet in a cluster ([`cluster`]), whose pods are reached by their
//! Service or by attaching to their standard streams ([`attach`], over a tuned connection, [`client`]), or as a process
//! on this machine ([`process`]), which ends with the program that started it ([`watchdog`], [`launch`]).
//!
//! Pure functions build the applied objects ([`objects`]) and decide which of two proxies may apply them ([`gate`]).

pub mod attach;
pub mod backoff;
pub mod client;
pub mod cluster;
pub mod gate;
pub mod launch;
pub mod objects;
pub mod pipe;
pub mod process;
pub mod report;
pub mod server;
pub mod watchdog;
