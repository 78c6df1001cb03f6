//! Skep's custom resources: the fourteen kinds of the API group `toolhive.stacklok.dev`.
//!
//! This crate owns what a manifest may say: the types (one file per kind under [`kinds`]), their schemas with defaults, bounds
//! and cross-field rules ([`schema`]), the definitions that teach all of it to an API server ([`crd`]), and the same validation
//! without one ([`admission`]). It reads and writes manifests as text ([`manifest`]), and rewrites errors of libraries for users ([`plain`]).
//! It never talks to an API server, and it decides nothing: what a resource *means* is the business of the plan.
//!
//! ```text
//!   Rust types ──serde──▶ objects as they travel
//!       └──schemars──▶ structural schema ──▶ CustomResourceDefinition ──▶ charts/skep-crds, docs/api.md, `skep crds`
//! ```
//!
//! A field is written once: its doc comment is what `kubectl explain` says, its serde default is what the API server fills in.

pub mod admission;
pub mod annotation;
pub mod auth_server;
pub mod authz;
pub mod crd;
pub mod custom;
pub mod kinds;
pub mod manifest;
pub mod plain;
pub mod reference;
pub mod resource;
pub mod schema;
pub mod status;
pub mod virtual_config;
pub mod workload;
