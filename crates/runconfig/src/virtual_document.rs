//! The configuration of a virtual server: `config.yaml`.
//!
//! What it holds is declared where people write it, in the VirtualMCPServer's `spec.config`; the plan completes that and
//! hands it over. This file owns only its form on the way: the order of its members, and the one member that is written
//! in another shape than people write it. The virtual server refuses members that it does not know, and so nothing is
//! added here.

use serde::Serialize;

use crate::json::{Json, JsonError, Members};

/// The members in the order in which they are written. Others follow, sorted.
const ORDER: &[&str] = &[
    "name",
    "groupRef",
    "backends",
    "incomingAuth",
    "outgoingAuth",
    "aggregation",
    "compositeTools",
    "compositeToolRefs",
    "operational",
    "metadata",
    "telemetry",
    "audit",
    "optimizer",
    "codeMode",
    "sessionStorage",
    "rateLimiting",
    "passthroughHeaders",
];

/// The buckets of a rate limit.
const BUCKETS: &[&str] = &["shared", "perUser"];

/// A virtual server's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualDocument(Json);

// === impl VirtualDocument ===

impl VirtualDocument {
    /// The document of a finished configuration.
    pub fn of<T: Serialize>(config: &T) -> Result<Self, JsonError> {
        let mut json = Json::of(config)?;
        if let Json::Object(members) = &mut json {
            members.arrange(ORDER);
            each_bucket(members, wrap);
        }
        Ok(Self(json))
    }

    /// Reads `config.yaml`.
    pub fn from_yaml(text: &str) -> Result<Self, JsonError> {
        Json::from_yaml(text).map(Self)
    }

    /// The text of `config.yaml`.
    pub fn to_yaml(&self) -> String {
        self.0.to_yaml()
    }

    /// The configuration, in the form in which people write it.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, JsonError> {
        let mut json = self.0.clone();
        if let Json::Object(members) = &mut json {
            each_bucket(members, unwrap);
        }
        json.decode()
    }
}

/// Does something to the refill period of every bucket.
fn each_bucket(members: &mut Members, change: fn(&mut Json)) {
    let Some(Json::Object(limits)) = members.get_mut("rateLimiting") else { return };
    refill_periods(limits, change);
    for list in ["tools", "prompts", "resources"] {
        let Some(Json::Array(entries)) = limits.get_mut(list) else { continue };
        for entry in entries {
            if let Json::Object(entry) = entry {
                refill_periods(entry, change);
            }
        }
    }
}

fn refill_periods(limits: &mut Members, change: fn(&mut Json)) {
    for bucket in BUCKETS {
        if let Some(Json::Object(bucket)) = limits.get_mut(bucket)
            && let Some(period) = bucket.get_mut("refillPeriod")
        {
            change(period);
        }
    }
}

/// `1m` is written as `{duration: 1m0s}`.
fn wrap(period: &mut Json) {
    if let Json::String(text) = period {
        let text = text.parse::<crate::GoDuration>().map_or_else(|_| text.clone(), |duration| duration.to_string());
        *period = Json::Object(Members::from_iter([("duration".to_owned(), Json::String(text))]));
    }
}

/// Both forms are read.
fn unwrap(period: &mut Json) {
    if let Some(text) = period.get("duration") {
        *period = text.clone();
    }
}

#[cfg(test)]
mod tests;
