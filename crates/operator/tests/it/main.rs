//! The operator on a real API server, and its charts, rendered by a real Helm.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod between;
#[cfg(test)]
mod caches;
#[cfg(test)]
mod charts;
#[cfg(test)]
mod compat;
#[cfg(test)]
mod configs;
#[cfg(test)]
mod confined;
#[cfg(test)]
mod converged;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod definitions;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod gitops;
#[cfg(test)]
mod helm;
#[cfg(test)]
mod injector;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod names;
#[cfg(test)]
mod others;
#[cfg(test)]
mod permissions;
#[cfg(test)]
mod quiet;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod running;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod support;
#[cfg(test)]
mod uninstall;
#[cfg(test)]
mod unknown;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod wire;
#[cfg(test)]
mod workloads;
