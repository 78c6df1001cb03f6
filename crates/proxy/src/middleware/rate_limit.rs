//! Limits how often tools are called, prompts requested and resources read: by all clients together, and by each.
//!
//! A request takes one token of every bucket that applies to it, or none and is refused with 429. Buckets are in Redis where sessions
//! are, so that several proxies share them, and else in memory. A message that was changed on its way is counted for what will be sent, and
//! for no bucket twice. While Redis cannot be asked, requests pass and are counted as such, unless the failure policy is `fail`.

mod rules;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use serde_json::json as value;
use skep_mcp::{Kind, Message, Raw, answer};
use skep_net::Body;
use skep_runconfig::parameters;
use skep_runconfig::run_config::{MiddlewareConfig, SessionRedis};
use skep_store::StoreError;
use skep_store::buckets::{Bucket, Buckets, Limit, MemoryBuckets, RateDecision, RedisBuckets};
use tokio::time::Instant;

use self::rules::{Charge, Operation, Rules, Scope};
use super::parser::refuse_unreadable;
use crate::chain::{AnswerReason, ChainError, Context, Flow, Middleware, Pass, RateLimitDecision, Step};
use crate::exchange::Exchange;
use crate::http::json;
use crate::metrics::{CheckLabels, RateLimitCounters};

/// The code of the error of a request that is refused.
const REFUSED: i64 = 429;

/// Limits requests.
#[derive(Debug)]
struct RateLimit {
    rules: Rules,
    buckets: Buckets,
    is_open_on_failure: bool,
    /// Whether the store failed last time: a change is logged, not every request.
    is_failing: AtomicBool,
    counters: RateLimitCounters,
}

/// The buckets that a request has paid for.
#[derive(Clone, Default)]
struct Paid(Vec<String>);

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let parameters = super::parameters::<parameters::RateLimit>(config)?;
    super::some(RateLimit::new(parameters, context).map_err(|problem| super::invalid(&config.kind, problem))?)
}

// === impl RateLimit ===

impl RateLimit {
    fn new(parameters: parameters::RateLimit, context: &Context) -> Result<Self, String> {
        let limits = parameters.config.unwrap_or_default();
        let is_open_on_failure = match limits.failure_policy.as_str() {
            "" | "ignore" => true,
            "fail" => false,
            other => return Err(format!("failurePolicy is `{other}`; use `fail` or `ignore`")),
        };
        let buckets = if parameters.redis_addr.is_empty() {
            Buckets::Memory(MemoryBuckets::default())
        } else {
            let redis =
                SessionRedis { address: parameters.redis_addr, db: parameters.redis_db, ..SessionRedis::default() };
            let options = crate::sessions::options(&redis, &context.environment)?;
            Buckets::Redis(RedisBuckets::new(&options).map_err(|error| error.to_string())?)
        };
        let rules = Rules::new(&limits, &parameters.namespace, &parameters.server_name)?;
        let counters = context.rate_limits.clone();
        Ok(Self { rules, buckets, is_open_on_failure, is_failing: AtomicBool::new(false), counters })
    }

    /// What a request has to pay, and has not paid yet.
    fn due(&self, exchange: &Exchange) -> Option<(Operation, Vec<Charge>)> {
        let message = exchange.message()?;
        let operation = Operation::of(message)?;
        let name = exchange.resource().unwrap_or_default();
        let subject = exchange.head.identity().map(|identity| &*identity.subject);
        let mut charges = self.rules.charges(operation, &name, subject);
        if let Some(Paid(paid)) = exchange.notes.get::<Paid>() {
            charges.retain(|charge| !paid.contains(&charge.bucket.key));
        }
        (!charges.is_empty()).then_some((operation, charges))
    }

    async fn charge(&self, exchange: &mut Exchange, operation: Operation, charges: Vec<Charge>) -> Flow {
        let (scopes, buckets): (Vec<Scope>, Vec<Bucket>) =
            charges.into_iter().map(|charge| (charge.scope, charge.bucket)).unzip();
        let started = Instant::now();
        let taken = self.buckets.take(&buckets).await;
        let refused = match &taken {
            Ok(RateDecision::Granted) => None,
            Ok(RateDecision::Refused(index)) => {
                scopes.get(*index).copied().zip(buckets.get(*index).map(|one| one.limit))
            }
            Err(error) => return self.failed(exchange, error),
        };
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!("counting rate limits again");
        }
        let labels = CheckLabels {
            namespace: self.rules.namespace.clone(),
            server: self.rules.server.clone(),
            decision: if refused.is_none() { "allowed" } else { "rejected" },
            scope: refused.map_or("none", |(scope, _)| scope.name()),
            operation_type: operation.name(),
        };
        self.counters.decided(&labels, started.elapsed());
        let (is_allowed, rejected_by) = (refused.is_none(), labels.scope);
        exchange.notes.insert(RateLimitDecision { is_allowed, rejected_by, fail_open: false });
        match refused {
            None => {
                let paid = exchange.notes.get_or_insert_default::<Paid>();
                paid.0.extend(buckets.into_iter().map(|bucket| bucket.key));
                Flow::Next
            }
            Some((scope, limit)) => {
                tracing::debug!(scope = scope.name(), "request refused by a rate limit");
                let mut response = refuse(exchange, limit);
                let reason = format!("rate limit of scope {}", scope.name());
                response.extensions_mut().insert(AnswerReason(reason));
                Flow::Answer(response)
            }
        }
    }

    /// Lets a request pass that could not be counted, or refuses it.
    fn failed(&self, exchange: &mut Exchange, error: &StoreError) -> Flow {
        let category = match error {
            StoreError::Unavailable(cause) => cause.category(),
            StoreError::Full | StoreError::Unreadable { .. } => "other",
        };
        self.counters.failed(&self.rules.namespace, &self.rules.server, category, self.is_open_on_failure);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            let outcome = if self.is_open_on_failure { "requests pass uncounted" } else { "requests are refused" };
            tracing::warn!(%error, outcome, "rate limits not counted");
        }
        let (is_allowed, rejected_by) = (self.is_open_on_failure, "none");
        exchange.notes.insert(RateLimitDecision { is_allowed, rejected_by, fail_open: is_allowed });
        if self.is_open_on_failure {
            return Flow::Next;
        }
        let id = id(exchange);
        let body = answer::error(id.as_ref(), answer::INTERNAL_ERROR, "Rate limit cannot be checked", None);
        let mut response = json(StatusCode::SERVICE_UNAVAILABLE, body);
        response.headers_mut().insert(RETRY_AFTER, 1.into());
        response.extensions_mut().insert(AnswerReason(format!("rate limit not checked: {category}")));
        Flow::Answer(response)
    }
}

impl Middleware for RateLimit {
    fn message<'a>(&'a self, exchange: &'a mut Exchange, _pass: Pass) -> Step<'a> {
        if let Some(refusal) = refuse_unreadable(exchange) {
            return refusal.into();
        }
        let Some((operation, charges)) = self.due(exchange) else { return Step::NEXT };
        Step::Pending(Box::pin(self.charge(exchange, operation, charges)))
    }

    fn enforces(&self) -> bool {
        true
    }

    fn needs_message(&self) -> bool {
        true
    }
}

/// The response to a request for which a bucket is empty.
fn refuse(exchange: &Exchange, limit: Limit) -> Response<Body> {
    let seconds = limit.retry_after();
    let data = Raw::value(&value!({ "retryAfterSeconds": seconds }));
    let id = id(exchange);
    let body = answer::error(id.as_ref(), REFUSED, "Rate limit exceeded", Some(&data));
    let mut response = json(StatusCode::TOO_MANY_REQUESTS, body);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// The id of a request; a notification has none.
fn id(exchange: &Exchange) -> Option<skep_mcp::Id> {
    exchange.message().filter(|message| message.kind() == Kind::Request).and_then(Message::id)
}
