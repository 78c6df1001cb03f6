//! The operator: the shell around `plan`.
//!
//! Owns what touches the API server on behalf of the whole cluster: watches, the world a plan sees, applying and pruning
//! children, statuses, events, the lease and the metrics. It decides nothing about a resource by itself; that is `plan`'s.
//!
//! So far it holds the answer to one question: what the operator may do. [`rbac`] is the only place that says so. The
//! rules in the Helm chart are generated from it (`cargo xtask gen`), so a permission that is not in the table does not
//! exist in a cluster.

pub mod rbac;
