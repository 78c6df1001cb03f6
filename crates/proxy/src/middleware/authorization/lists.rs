//! Lists, down to what a client may use. It fails closed: a list that cannot be evaluated is withheld, and so is one that is too long to be.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use skep_auth::Caller;
use skep_authz::Decision;
use skep_authz::cedar::{Cedar, Evaluation};
use skep_authz::pdp::Pdp;
use skep_authz::query::{Annotations, Feature, Query};
use skep_mcp::list::{self, List, Verdict};
use skep_mcp::{Message, MessageError};
use skep_net::Client;
use skep_upstream::BackendNames;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Authorizer, Decider};
use crate::chain::reply::{ReplyMiddleware, ReplyStep, Withheld};

const LISTS: [List; 4] = [List::Tools, List::Prompts, List::Resources, List::ResourceTemplates];
/// How many elements a reply may have that is filtered.
pub(super) const MOST: usize = 10_000;
/// After how many decisions other tasks have their turn.
pub(super) const TURN: usize = 64;
/// How many elements a decision point is asked about at the same time.
const AT_ONCE: usize = 16;

/// Filters the lists of replies to one client.
#[derive(Debug)]
pub(super) struct ListFilter {
    authorizer: Arc<Authorizer>,
    /// Whom the lists are for.
    client: String,
    pub(super) claims: Arc<Map<String, Value>>,
    /// Which of several servers each thing belongs to, if decisions may depend on it.
    backends: Option<Arc<dyn BackendNames>>,
}

/// An element of a list.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    list: List,
    pub(super) name: String,
    pub(super) annotations: Annotations,
}

/// The elements of all lists in a reply, in order.
pub(super) fn elements(reply: &Message) -> Result<Vec<Listed>, Withheld> {
    let mut elements = Vec::new();
    for list in LISTS {
        let read = list::rewrite(reply, list, |element| {
            if elements.len() <= MOST {
                let hints = element.annotations.filter(|_| list == List::Tools);
                let annotations = hints.map(Annotations::of_json).unwrap_or_default();
                elements.push(Listed { list, name: element.name.clone().into_owned(), annotations });
            }
            Verdict::Keep
        });
        read.map_err(Withheld)?;
    }
    if elements.len() > MOST {
        return Err(Withheld(MessageError::TooManyMembers { place: "the list of a result" }));
    }
    Ok(unambiguous(elements))
}

/// Resources by their URIs, as if they were listed.
pub(super) fn resources(uris: impl IntoIterator<Item = String>) -> Vec<Listed> {
    let resource = |name| Listed { list: List::Resources, name, annotations: Annotations::default() };
    uris.into_iter().map(resource).collect()
}

/// Tools of one name have the annotations of the last one, by which calls of them are decided about.
fn unambiguous(mut elements: Vec<Listed>) -> Vec<Listed> {
    let tools = elements.iter().filter(|element| element.list == List::Tools);
    let last: HashMap<String, Annotations> = tools.map(|tool| (tool.name.clone(), tool.annotations)).collect();
    for tool in elements.iter_mut().filter(|element| element.list == List::Tools) {
        tool.annotations = last.get(&tool.name).copied().unwrap_or_default();
    }
    elements
}

// === impl ListFilter ===

impl ListFilter {
    pub(super) fn new(authorizer: &Arc<Authorizer>, caller: &Caller, backends: Option<Arc<dyn BackendNames>>) -> Self {
        let (client, claims) = (caller.identity.key(), caller.claims.clone());
        Self { authorizer: authorizer.clone(), client, claims, backends }
    }

    /// Keeps the elements of every list that are allowed.
    async fn filter(&self, mut reply: Message, elements: Vec<Listed>) -> Result<Message, Withheld> {
        if self.authorizer.needs_annotations() {
            self.authorizer.remember(&self.client, &elements);
        }
        let allowed = match &self.authorizer.engine {
            Decider::Cedar(cedar) => self.by_cedar(cedar, &elements).await,
            Decider::Http(pdp, client) => self.by_asking(pdp, client, elements).await,
        };
        let mut allowed = allowed.into_iter();
        for list in LISTS {
            let rewritten =
                list::rewrite(
                    &reply,
                    list,
                    |_| {
                        if allowed.next() == Some(true) { Verdict::Keep } else { Verdict::Drop }
                    },
                );
            if let Some(body) = rewritten.map_err(Withheld)? {
                reply = Message::parse(body).map_err(Withheld)?;
            }
        }
        Ok(reply)
    }

    async fn by_cedar(&self, cedar: &Cedar, elements: &[Listed]) -> Vec<bool> {
        let Ok(principal) = cedar.principal(&self.claims) else { return vec![false; elements.len()] };
        let mut evaluation = cedar.evaluation(&principal, &self.authorizer.server);
        let mut allowed = Vec::with_capacity(elements.len());
        for turn in elements.chunks(TURN) {
            allowed.extend(turn.iter().map(|element| self.allows(&mut evaluation, element)));
            tokio::task::yield_now().await;
        }
        allowed
    }

    /// The server of a thing, for a decision about it.
    pub(super) fn backend(&self, list: List, name: &str) -> Result<Option<Arc<str>>, Decision> {
        super::backends::backend_of(self.backends.as_ref().map(|backends| backends.owner(list, name)))
    }

    /// The same decision as about a call: what no backend has is denied there as well.
    fn allows(&self, evaluation: &mut Evaluation<'_>, element: &Listed) -> bool {
        let Ok(backend) = self.backend(element.list, &element.name) else { return false };
        evaluation.decide(&Query { backend: backend.as_deref(), ..element.query() }).is_allowed
    }

    /// Asks about several elements at once, all of them within the time of one request. What is not answered by then is denied.
    pub(super) async fn by_asking(&self, pdp: &Pdp, client: &Client, elements: Vec<Listed>) -> Vec<bool> {
        let until = Instant::now() + Duration::from_secs(pdp.timeout);
        let mut allowed = vec![false; elements.len()];
        let (mut asked, mut rest) = (JoinSet::new(), elements.into_iter().enumerate());
        loop {
            for (index, element) in rest.by_ref().take(AT_ONCE.saturating_sub(asked.len())) {
                let (authorizer, claims) = (self.authorizer.clone(), self.claims.clone());
                let (pdp, client) = (pdp.clone(), client.clone());
                asked.spawn(async move {
                    let decision = authorizer.ask(&pdp, &client, &claims, &element.query(), None).await;
                    (index, decision.is_allowed)
                });
            }
            match tokio::time::timeout_at(until, asked.join_next()).await {
                Ok(Some(Ok((index, is_allowed)))) => {
                    if let Some(one) = allowed.get_mut(index) {
                        *one = is_allowed;
                    }
                }
                // A decision that panicked is none.
                Ok(Some(Err(_))) => {}
                Ok(None) => return allowed,
                Err(_elapsed) => {
                    tracing::warn!("request or list cut: the decision point did not decide about all of it in time");
                    return allowed;
                }
            }
        }
    }
}

impl ReplyMiddleware for ListFilter {
    fn reply(&self, reply: Message) -> ReplyStep<'_> {
        match elements(&reply) {
            Err(withheld) => ReplyStep::Ready(Err(withheld)),
            Ok(elements) if elements.is_empty() => ReplyStep::Ready(Ok(reply)),
            Ok(elements) => ReplyStep::Pending(Box::pin(self.filter(reply, elements))),
        }
    }
}

// === impl Listed ===

impl Listed {
    pub(super) fn is_tool(&self) -> bool {
        self.list == List::Tools
    }

    /// Whether it may be used. What arguments it will be called with is not known.
    fn query(&self) -> Query<'_> {
        Query::of_element(Feature::of_list(self.list), &self.name, self.annotations)
    }
}
