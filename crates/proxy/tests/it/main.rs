//! The proxy over real sockets, in front of servers that do as tests tell them.

#![cfg_attr(test, expect(clippy::needless_pass_by_value, reason = "values are written in place"))]

#[cfg(test)]
mod annotated;
#[cfg(test)]
mod audited;
#[cfg(test)]
mod authorized;
#[cfg(test)]
mod bridge;
#[cfg(test)]
mod called;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod client;
#[cfg(test)]
mod confined;
#[cfg(test)]
mod decision_point;
#[cfg(test)]
mod eras;
#[cfg(test)]
mod exact;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod filtered;
#[cfg(test)]
mod forward;
#[cfg(test)]
mod guarded;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lines;
mod link;
#[cfg(test)]
mod listening;
#[cfg(test)]
mod opaque;
#[cfg(test)]
mod open;
#[cfg(test)]
mod outgoing;
#[cfg(test)]
mod parameters;
#[cfg(test)]
mod rate_limits;
#[cfg(test)]
mod raw;
#[cfg(test)]
mod renewed;
#[cfg(test)]
mod resumed;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod streamable;
#[cfg(test)]
mod subscribed;
#[cfg(test)]
mod traced;
#[cfg(test)]
mod watched;
#[cfg(test)]
mod web;
#[cfg(test)]
mod webhook_failures;
#[cfg(test)]
mod webhooks;
