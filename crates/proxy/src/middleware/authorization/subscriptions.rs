//! `subscriptions/listen` of 2026-07-28: one request that subscribes to many resources. Each of them is decided about by the rule for reading
//! it, and a client that may not read one of them is denied the request, without a word about which.

use std::collections::BTreeSet;

use skep_authz::Decision;
use skep_authz::cedar::Cedar;
use skep_authz::query::{Annotations, Feature, Query};
use skep_mcp::bridge::Filter;
use skep_mcp::list::List;

use super::lists::{ListFilter, TURN};
use super::{Authorization, Decider, NO_CALLER};
use crate::chain::Step;
use crate::exchange::Exchange;

// === impl Authorization ===

impl Authorization {
    /// Decides about every resource that a message subscribes to. A filter that cannot be read in one way only is denied.
    pub(super) fn decide_each<'a>(&'a self, exchange: &'a mut Exchange, feature: Feature) -> Step<'a> {
        let uris = match exchange.message().map(Filter::of) {
            Some(Ok(filter)) => filter.uris,
            Some(Err(error)) => return self.fail(exchange, &error.to_string()),
            None => return self.fail(exchange, "there is no message"),
        };
        // Notifications that a list has changed name nothing.
        if uris.is_empty() {
            return Step::NEXT;
        }
        let Some(caller) = &exchange.head.caller else { return self.fail(exchange, NO_CALLER) };
        let backends = exchange.backends.clone().filter(|_| self.0.needs_backends());
        let all = ListFilter::new(&self.0, caller, backends);
        Step::Pending(Box::pin(async move {
            let decision = self.of_each(&all, feature, uris).await;
            self.settled(exchange, &decision)
        }))
    }

    async fn of_each(&self, all: &ListFilter, feature: Feature, uris: BTreeSet<String>) -> Decision {
        match &self.0.engine {
            Decider::Cedar(cedar) => self.each_by_cedar(cedar, all, feature, &uris).await,
            Decider::Http(pdp, client) => {
                let allowed = all.by_asking(pdp, client, super::lists::resources(uris)).await;
                if allowed.contains(&false) { Decision::default() } else { super::by_decision_point() }
            }
        }
    }

    /// The first denial, or all policies that permit the resources.
    async fn each_by_cedar(
        &self,
        cedar: &Cedar,
        all: &ListFilter,
        feature: Feature,
        uris: &BTreeSet<String>,
    ) -> Decision {
        let principal = match cedar.principal(&all.claims) {
            Ok(principal) => principal,
            Err(failed) => return failed,
        };
        let mut evaluation = cedar.evaluation(&principal, &self.0.server);
        let mut policies = BTreeSet::new();
        for (number, uri) in uris.iter().enumerate() {
            if number % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            let backend = match all.backend(List::Resources, uri) {
                Ok(backend) => backend,
                Err(denied) => return denied,
            };
            let query = Query::of_element(feature, uri, Annotations::default());
            let decision = evaluation.decide(&Query { backend: backend.as_deref(), ..query });
            if !decision.is_allowed {
                return decision;
            }
            policies.extend(decision.policies);
        }
        Decision { is_allowed: true, policies: policies.into_iter().collect(), errors: Vec::new() }
    }
}
