//! The operator: the shell around `plan`.
//!
//! Owns what touches the API server on behalf of the whole cluster: watches, the world a plan sees, applying and pruning
//! children, statuses, events, the lease and the metrics. It decides nothing about a resource by itself; that is `plan`'s.
//!
//! ```text
//!   watches ──▶ store + graph ──wakes──▶ queue ──▶ reconcile: gather ▶ plan (pure) ▶ apply ▶ prune ▶ status
//!      ▲                                                                              │
//!      └────────────────────────── API server ◀──────────── write ◀──────────────────┘
//! ```
//!
//! What the operator may do is [`rbac`]'s to say; the rules in the Helm chart are generated from it (`cargo xtask gen`), so a
//! permission that is not in the table does not exist in a cluster.

pub mod adopt;
pub mod events;
pub mod failure;
pub mod graph;
pub mod lease;
pub mod metrics;
pub mod migrate;
pub mod object;
mod policy_cache;
pub mod possible_names;
pub mod queue;
pub mod rbac;
pub mod readiness;
pub mod reconcile;
pub mod run;
mod secret_digest;
pub mod serve;
pub mod served;
pub mod session_key;
pub mod settings;
pub mod store;
pub mod uninstall;
pub mod watch;
pub mod write;
