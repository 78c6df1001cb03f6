//! Rate limits: what is wrong with them, and what a RunConfig says about them.

use skep_api::kinds::FailurePolicy;
use skep_api::workload::{NamedRateLimit, RateLimitBucket as Bucket, RateLimiting};
use skep_runconfig::run_config::{RateLimitBucket, RateLimitConfig, ToolRateLimit};

use crate::error::PlanError;
use crate::run_config::normal_duration;
use crate::validate::Problems;

/// The limits as a RunConfig has them.
pub fn document(limits: &RateLimiting) -> RateLimitConfig {
    let bucket = |bucket: &Option<Bucket>| {
        bucket.as_ref().map(|bucket| RateLimitBucket {
            max_tokens: bucket.max_tokens,
            refill_period: normal_duration(&bucket.refill_period),
            ..RateLimitBucket::default()
        })
    };
    let named = |name: &str, shared: &Option<Bucket>, per_user: &Option<Bucket>| ToolRateLimit {
        name: name.to_owned(),
        shared: bucket(shared),
        per_user: bucket(per_user),
        ..ToolRateLimit::default()
    };
    let others =
        |list: &[NamedRateLimit]| list.iter().map(|one| named(&one.name, &one.shared, &one.per_user)).collect();
    RateLimitConfig {
        shared: bucket(&limits.shared),
        per_user: bucket(&limits.per_user),
        tools: limits.tools.iter().map(|tool| named(&tool.name, &tool.shared, &tool.per_user)).collect(),
        prompts: others(&limits.prompts),
        resources: others(&limits.resources),
        failure_policy: match limits.failure_policy {
            None => String::new(),
            Some(FailurePolicy::Fail) => "fail".to_owned(),
            Some(FailurePolicy::Ignore) => "ignore".to_owned(),
        },
        ..RateLimitConfig::default()
    }
}

/// Refuses limits that no bucket can have.
pub(crate) fn check(limits: &RateLimiting) -> Result<(), PlanError> {
    let mut problems = Problems::default();
    add_problems(&mut problems, limits);
    problems.list().into_iter().next().map_or(Ok(()), |problem| Err(PlanError::InvalidSpec(format!("spec.{problem}"))))
}

/// What is wrong with limits, by the place in `rateLimiting`.
pub(crate) fn add_problems(problems: &mut Problems, limits: &RateLimiting) {
    for (place, bucket) in buckets(limits) {
        problems.some_time(format_args!("rateLimiting.{place}.refillPeriod"), Some(&bucket.refill_period));
    }
}

/// Whether a limit is per user, so that clients must be told apart.
pub(crate) fn is_per_user(limits: &RateLimiting) -> bool {
    buckets(limits).iter().any(|(place, _)| place.ends_with("perUser"))
}

/// Every bucket, by its place.
fn buckets(limits: &RateLimiting) -> Vec<(String, &Bucket)> {
    let mut all = vec![("shared".to_owned(), &limits.shared), ("perUser".to_owned(), &limits.per_user)];
    for (index, tool) in limits.tools.iter().enumerate() {
        all.extend(
            [("shared", &tool.shared), ("perUser", &tool.per_user)]
                .map(|(name, bucket)| (format!("tools[{index}].{name}"), bucket)),
        );
    }
    for (list, entries) in [("prompts", &limits.prompts), ("resources", &limits.resources)] {
        for (index, one) in entries.iter().enumerate() {
            let place = |name: &str| format!("{list}[{index}].{name}");
            all.extend([(place("shared"), &one.shared), (place("perUser"), &one.per_user)]);
        }
    }
    all.into_iter().filter_map(|(place, bucket)| bucket.as_ref().map(|bucket| (place, bucket))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limits(value: serde_json::Value) -> RateLimiting {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_period_that_is_none_is_refused_with_its_place() {
        let bucket = |period: &str| json!({ "maxTokens": 1, "refillPeriod": period });
        for (given, place) in [
            (json!({ "shared": bucket("0s") }), "spec.rateLimiting.shared.refillPeriod: "),
            (json!({ "perUser": bucket("soon") }), "spec.rateLimiting.perUser.refillPeriod: "),
            (
                json!({ "tools": [{ "name": "a", "shared": bucket("-1s") }] }),
                "spec.rateLimiting.tools[0].shared.refillPeriod: ",
            ),
            (
                json!({ "prompts": [{ "name": "*", "perUser": bucket("") }] }),
                "spec.rateLimiting.prompts[0].perUser.refillPeriod: ",
            ),
            (
                json!({ "resources": [{ "name": "db://a", "shared": bucket("0") }] }),
                "spec.rateLimiting.resources[0].shared.",
            ),
        ] {
            let problem = check(&limits(given.clone())).unwrap_err().to_string();
            assert!(problem.contains(place), "{given}: {problem}");
        }
        assert!(check(&limits(json!({ "shared": bucket("1m30s") }))).is_ok());
    }

    #[test]
    fn additions_to_the_api_are_written_only_where_they_are_set() {
        let bucket = json!({ "maxTokens": 5, "refillPeriod": "60s" });
        let plain = document(&limits(json!({ "shared": bucket })));
        assert_eq!(
            skep_runconfig::Field::write(&plain).to_compact(),
            r#"{"shared":{"maxTokens":5,"refillPeriod":"1m0s"}}"#
        );
        let all =
            document(&limits(json!({ "failurePolicy": "fail", "resources": [{ "name": "*", "perUser": bucket }] })));
        let expected =
            r#"{"resources":[{"name":"*","perUser":{"maxTokens":5,"refillPeriod":"1m0s"}}],"failurePolicy":"fail"}"#;
        assert_eq!(skep_runconfig::Field::write(&all).to_compact(), expected);
    }
}
