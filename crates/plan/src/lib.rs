//! The pure core: what a resource and the world around it come to.
//!
//! [`plan::plan`] is a function from a [`Resource`](skep_api::resource::Resource) and its [`world::World`] to a [`plan::Plan`]: the complete
//! child objects in order, the next status, and what to do with the finalizer. It reads no clock, no environment and no network,
//! knows no hash map, and has a plan for whatever a resource may say. The operator applies the children of a plan, `skep run` starts
//! the process that its [`proxy::ProxyPlan`] renders, tests compare both. Every failure is an [`error::PlanError`].
//!
//! ```text
//!   resource ┐                ┌ verdict: apply, wait or refuse
//!   world    ┴─▶ plan (pure) ─┼ children: finished, stamped bodies for server-side apply
//!                             └ status: conditions and fields, without times
//! ```

mod account;
mod auth_server;
mod authz;
pub mod canonical;
pub mod child;
pub mod composite;
mod config;
mod embedding;
mod entry;
pub mod error;
pub mod grants;
mod group;
pub mod inputs;
pub mod key;
pub mod kinds;
pub mod merge;
pub mod names;
mod overrides;
pub mod plan;
pub mod pod;
pub mod proxy;
pub mod rate_limits;
mod readiness;
mod registry;
mod remote_proxy;
mod resolve;
mod rollout;
mod run_config;
mod server;
pub mod status;
mod support;
pub mod text;
pub mod unplanned;
pub mod validate;
pub mod virtual_config;
pub mod virtual_server;
mod webhook;
pub mod world;

pub use self::run_config::inline_authz;
