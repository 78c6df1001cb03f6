//! The watch of a server's Services. Only their uids are read: are they still the objects that were applied?

use futures_util::StreamExt as _;
use futures_util::future::select_all;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use tokio::sync::watch as signal;

use super::{Applied, Cluster};
use crate::objects::services;

impl Cluster {
    /// Ends when a Service that this proxy applied was deleted or replaced. Waits for the apply first; never ends for a
    /// server without Services, nor for one that a newer proxy owns.
    pub(super) async fn service_deleted(&self, mut since: signal::Receiver<Option<Applied>>) {
        let applied = since.wait_for(Option::is_some).await.ok().and_then(|applied| applied.clone());
        let Some(Applied::Ours { uid, .. }) = applied else { return std::future::pending().await };
        let owner = uid.unwrap_or_default();
        let services = services(&self.server, &self.namespace, &owner).unwrap_or_default();
        if services.is_empty() {
            return std::future::pending().await;
        }
        let watches = services.iter().map(|(name, _)| Box::pin(self.is_deleted(name)));
        select_all(watches).await;
    }

    /// Ends when the Service of that name is deleted. Watches break; the list that follows shows what was missed.
    async fn is_deleted(&self, name: &str) {
        let services: Api<PartialObjectMeta<DynamicObject>> = self.objects("", "Service");
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = std::pin::pin!(watch(services, config).default_backoff());
        // The uid of the one that was applied, and whether the list in progress has it.
        let (mut known, mut is_listed): (Option<String>, bool) = (None, false);
        let mut is_another = |service: &PartialObjectMeta<DynamicObject>| {
            let uid = service.metadata.uid.clone().unwrap_or_default();
            *known.get_or_insert_with(|| uid.clone()) != uid
        };
        while let Some(change) = changes.next().await {
            let is_gone = match change {
                Ok(Event::Init) => {
                    is_listed = false;
                    false
                }
                Ok(Event::InitApply(service)) => {
                    is_listed = true;
                    is_another(&service)
                }
                Ok(Event::Apply(service)) => is_another(&service),
                Ok(Event::InitDone) => !is_listed,
                Ok(Event::Delete(_)) => true,
                Err(error) => {
                    tracing::debug!(%error, service = name, "Service watch interrupted");
                    false
                }
            };
            if is_gone {
                tracing::warn!(service = name, "Service of the server deleted, applying it again");
                return;
            }
        }
    }
}
