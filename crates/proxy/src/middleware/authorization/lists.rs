//! Lists, down to what a client may use. It fails closed: a list that cannot be evaluated is withheld.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use skep_authz::cedar::Cedar;
use skep_authz::query::{Annotations, Feature, Query};
use skep_mcp::Message;
use skep_mcp::list::{self, Element, List, Verdict};

use super::{Authorizer, Decider};
use crate::chain::reply::{ReplyMiddleware, ReplyStep, Withheld};

const LISTS: [List; 4] = [List::Tools, List::Prompts, List::Resources, List::ResourceTemplates];

/// Filters the lists of replies to one client.
#[derive(Debug)]
pub(super) struct ListFilter {
    pub(super) authorizer: Arc<Authorizer>,
    pub(super) claims: Arc<Map<String, Value>>,
}

// === impl ListFilter ===

impl ListFilter {
    /// Keeps the elements of every list that are allowed.
    fn keep(
        &self,
        mut reply: Message,
        mut is_allowed: impl FnMut(List, &Element<'_>) -> bool,
    ) -> Result<Message, Withheld> {
        for list in LISTS {
            let mut tools = Vec::new();
            let rewritten = list::rewrite(&reply, list, |element| {
                if list == List::Tools {
                    tools.push((element.name.clone().into_owned(), annotations(element)));
                }
                if is_allowed(list, element) { Verdict::Keep } else { Verdict::Drop }
            });
            if let Some(body) = rewritten.map_err(Withheld)? {
                reply = Message::parse(body).map_err(Withheld)?;
            }
            self.authorizer.remember(tools.into_iter());
        }
        Ok(reply)
    }

    fn by_cedar(&self, cedar: &Cedar, reply: Message) -> Result<Message, Withheld> {
        let principal = cedar.principal(&self.claims).ok();
        self.keep(reply, |list, element| {
            let query = query(list, element);
            let server = &self.authorizer.server;
            principal.as_ref().is_some_and(|principal| cedar.decide(principal, &query, server).is_allowed)
        })
    }

    /// Asks about each element first: the answers come one after the other, and a list is rewritten at once.
    async fn by_asking(&self, reply: Message) -> Result<Message, Withheld> {
        let mut elements = Vec::new();
        for list in LISTS {
            let read = list::rewrite(&reply, list, |element| {
                elements.push((list, element.name.clone().into_owned(), annotations(element)));
                Verdict::Keep
            });
            read.map_err(Withheld)?;
        }
        let mut allowed = HashSet::new();
        for (list, name, annotations) in elements {
            let query = Query::of_element(Feature::of_list(list), &name, annotations);
            if self.authorizer.decide(&self.claims, &query).await.is_allowed {
                allowed.insert((list, name));
            }
        }
        self.keep(reply, |list, element| allowed.contains(&(list, element.name.clone().into_owned())))
    }
}

impl ReplyMiddleware for ListFilter {
    fn reply(&self, reply: Message) -> ReplyStep<'_> {
        match &self.authorizer.engine {
            Decider::Cedar(cedar) => ReplyStep::Ready(self.by_cedar(cedar, reply)),
            Decider::Http(..) => ReplyStep::Pending(Box::pin(self.by_asking(reply))),
        }
    }
}

/// Whether an element may be used. What arguments it will be called with is not known.
fn query<'a>(list: List, element: &'a Element<'_>) -> Query<'a> {
    let annotations = if list == List::Tools { annotations(element) } else { Annotations::default() };
    Query::of_element(Feature::of_list(list), &element.name, annotations)
}

fn annotations(element: &Element<'_>) -> Annotations {
    element.annotations.map(Annotations::of_json).unwrap_or_default()
}
