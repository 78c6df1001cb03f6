//! The charts, rendered by a real Helm and judged by a real API server.

#[cfg(test)]
mod charts;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod helm;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod refusals;
