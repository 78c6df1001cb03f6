//! Sending traces and metrics to a collector: OTLP over HTTP, as protobuf.
//!
//! A request of a client never waits for the collector. Spans go into a bounded queue, metrics are aggregated in place, and one task each
//! sends them. What does not fit the queue, or cannot be sent, is dropped and counted.

mod client;
mod endpoint;
mod metrics;
mod spans;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::Temporality;
use skep_net::Client;

use self::client::CollectorClient;
pub use self::endpoint::{Endpoint, EndpointError};
pub use self::metrics::{Bounds, ExportedMetrics, Measurement, MetricTask};
pub use self::spans::{SpanTask, Traces};

/// The scope of everything that is sent, as dashboards of the original know it.
const SCOPE: &str = "github.com/stacklok/toolhive/pkg/telemetry";
/// How long the collector may take for a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end of a proxy waits for the collector.
const FLUSH: Duration = Duration::from_secs(3);
/// The prefix of variables with headers for the collector whose values are secrets.
const HEADER: &str = "TOOLHIVE_OTEL_HEADER_";

/// A collector.
#[derive(Debug)]
pub struct Collector {
    endpoint: Endpoint,
    headers: HashMap<String, String>,
    resource: Resource,
    client: Arc<dyn HttpClient>,
}

/// What is said about the process that traces and metrics come from.
#[derive(Clone, Debug, Default)]
pub struct ResourceFacts<'a> {
    /// `service.name`
    pub service_name: &'a str,
    /// `service.version`
    pub service_version: &'a str,
    /// Further attributes of the configuration.
    pub attributes: BTreeMap<String, String>,
    /// The variable `OTEL_RESOURCE_ATTRIBUTES`, which wins.
    pub variable: &'a str,
    /// The name of the host.
    pub host: &'a str,
}

// === impl Collector ===

impl Collector {
    /// A collector that is reached by a client. Headers of the configuration are sent with every request, and so are those of the
    /// environment, which hold secrets.
    pub fn new(
        endpoint: Endpoint,
        headers: &BTreeMap<String, String>,
        environment: &BTreeMap<String, String>,
        resource: &ResourceFacts<'_>,
        client: Client,
    ) -> Self {
        let open = headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        let headers = open.chain(secret_headers(environment)).collect();
        Self {
            endpoint,
            headers,
            resource: resource.resource(),
            client: Arc::new(CollectorClient::new(client, TIMEOUT)),
        }
    }

    /// The exporters send once: between attempts of their own, they would block the thread.
    fn span_exporter(&self) -> Result<SpanExporter, ExporterBuildError> {
        let builder = SpanExporter::builder().with_http().with_endpoint(self.endpoint.traces());
        let builder = builder.with_timeout(TIMEOUT).with_shared_http_client(self.client.clone());
        builder.with_headers(self.headers.clone()).with_retry_policy(RetryPolicy::disabled()).build()
    }

    fn metric_exporter(&self) -> Result<MetricExporter, ExporterBuildError> {
        let builder = MetricExporter::builder().with_http().with_endpoint(self.endpoint.metrics());
        let builder = builder.with_temporality(Temporality::Cumulative).with_timeout(TIMEOUT);
        let builder = builder.with_shared_http_client(self.client.clone()).with_headers(self.headers.clone());
        builder.with_retry_policy(RetryPolicy::disabled()).build()
    }
}

/// Headers whose values are secrets: their names in a variable have underscores for hyphens.
fn secret_headers(environment: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    environment.iter().filter_map(|(variable, value)| {
        let name = variable.strip_prefix(HEADER).filter(|name| !name.is_empty())?;
        Some((name.to_ascii_lowercase().replace('_', "-"), value.trim_end_matches(['\r', '\n']).to_owned()))
    })
}

// === impl ResourceFacts ===

impl ResourceFacts<'_> {
    fn resource(&self) -> Resource {
        let known = [
            ("host.name", self.host),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.name", "opentelemetry"),
            ("service.name", self.service_name),
            ("service.version", self.service_version),
        ];
        let mut attributes: BTreeMap<String, String> = known
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        attributes.extend(self.attributes.clone());
        let pairs = self.variable.split(',').filter_map(|pair| pair.split_once('='));
        attributes.extend(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())));
        let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value));
        Resource::builder_empty().with_attributes(attributes).build()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::Key;

    use super::*;

    #[test]
    fn the_variable_wins_over_the_configuration_and_that_over_what_is_known() {
        let facts = ResourceFacts {
            service_name: "a",
            service_version: "1",
            attributes: BTreeMap::from([
                ("team".to_owned(), "x".to_owned()),
                ("service.version".to_owned(), "2".to_owned()),
            ]),
            variable: "service.name=b, service.namespace=ns,broken",
            host: "",
        };
        let resource = facts.resource();
        let value = |name: &'static str| resource.get(&Key::new(name)).map(|value| value.to_string());
        for (name, expected) in [
            ("service.name", Some("b")),
            ("service.version", Some("2")),
            ("service.namespace", Some("ns")),
            ("team", Some("x")),
            ("host.name", None),
        ] {
            assert_eq!(value(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn headers_with_secrets_come_from_the_environment() {
        let environment = [("TOOLHIVE_OTEL_HEADER_X_API_KEY", "s\n"), ("TOOLHIVE_OTEL_HEADER_", "n"), ("OTHER", "n")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(secret_headers(&environment).collect::<Vec<_>>(), [("x-api-key".to_owned(), "s".to_owned())]);
    }
}
