//! The virtual server over servers in memory, and its discovery on a real API server.

#[cfg(test)]
mod discover;
#[cfg(test)]
mod events;
#[cfg(test)]
mod fetching;
#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod live;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod names;
#[cfg(test)]
mod rig;
