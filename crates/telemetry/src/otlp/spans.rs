//! Spans on their way to a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Collector, FLUSH, SCOPE};

/// How many spans may wait to be sent, and how many are sent at once.
const QUEUE: usize = 2048;
const BATCH: usize = 512;
/// How often spans are sent to a collector that fails, and the pause before the next attempt, which doubles.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The traces of a proxy. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Traces {
    tracer: SdkTracer,
    queue: mpsc::Sender<Command>,
    dropped: Arc<AtomicU64>,
    /// Kept for as long as there are spans.
    _provider: SdkTracerProvider,
}

/// Sends spans, for as long as there are [`Traces`].
#[derive(Debug)]
pub struct SpanTask {
    queue: mpsc::Receiver<Command>,
    exporter: SpanExporter,
    delay: Duration,
    dropped: Arc<AtomicU64>,
    is_failing: bool,
}

#[derive(Debug)]
enum Command {
    Send(Box<SpanData>),
    /// Says when everything before it was sent or dropped.
    Flush(oneshot::Sender<()>),
}

/// Queues spans that ended.
#[derive(Debug)]
struct Queue {
    queue: mpsc::Sender<Command>,
    dropped: Arc<AtomicU64>,
}

// === impl Traces ===

impl Traces {
    /// Traces of which a part, from 0 to 1, is kept unless the client decided already. Spans are sent `delay` after the first one ended,
    /// or when there are many.
    pub fn new(collector: &Collector, ratio: f64, delay: Duration) -> Result<(Self, SpanTask), ExporterBuildError> {
        let mut exporter = collector.span_exporter()?;
        exporter.set_resource(&collector.resource);
        let (queue, receiver) = mpsc::channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        let processor = Queue { queue: queue.clone(), dropped: dropped.clone() };
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)));
        let provider = SdkTracerProvider::builder()
            .with_resource(collector.resource.clone())
            .with_sampler(sampler)
            .with_span_processor(processor)
            .build();
        let tracer = provider.tracer_with_scope(InstrumentationScope::builder(SCOPE).build());
        let task = SpanTask { queue: receiver, exporter, delay, dropped: dropped.clone(), is_failing: false };
        Ok((Self { tracer, queue, dropped, _provider: provider }, task))
    }

    /// Starts spans.
    pub fn tracer(&self) -> &SdkTracer {
        &self.tracer
    }

    /// How many spans were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all spans were sent, for a bounded time.
    pub async fn flush(&self) {
        let (sender, sent) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Command::Flush(sender)).await.is_ok() {
                // A task that ended has nothing to send.
                let _ended = sent.await;
            }
        };
        if tokio::time::timeout(FLUSH, flushed).await.is_err() {
            tracing::warn!("last spans lost: the collector did not accept them in time");
        }
    }
}

// === impl Queue ===

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.queue.try_send(Command::Send(Box::new(span))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

// === impl SpanTask ===

impl SpanTask {
    /// Runs until there are no traces any more.
    pub async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let (batch, flushed) = self.batch(first).await;
            self.send(batch).await;
            if let Some(flushed) = flushed {
                // The caller may not wait any more.
                let _gone = flushed.send(());
            }
        }
    }

    /// The spans that are sent together, and who waits for that.
    async fn batch(&mut self, first: Command) -> (Vec<SpanData>, Option<oneshot::Sender<()>>) {
        let (mut batch, mut next) = (Vec::new(), Some(first));
        let until = Instant::now() + self.delay;
        loop {
            match next.take() {
                Some(Command::Send(span)) => batch.push(*span),
                Some(Command::Flush(flushed)) => return (batch, Some(flushed)),
                None => return (batch, None),
            }
            if batch.len() >= BATCH {
                return (batch, None);
            }
            next = tokio::time::timeout_at(until, self.queue.recv()).await.unwrap_or_default();
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        for attempt in 0..ATTEMPTS {
            let Err(error) = self.exporter.export(batch.clone()).await else {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(dropped = self.dropped.load(Ordering::Relaxed), "spans exported again");
                }
                return;
            };
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::warn!(%error, "spans not exported: retrying, and dropping what does not fit the queue");
            }
            if attempt + 1 < ATTEMPTS {
                tokio::time::sleep(PAUSE * 2_u32.pow(attempt)).await;
            }
        }
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::SystemTime;

    use super::super::{Endpoint, ResourceFacts};
    use super::*;
    use crate::trace::{Carrier, RequestSpan, SpanFacts};

    fn traces(ratio: f64) -> (Traces, SpanTask) {
        let endpoint = Endpoint::parse("127.0.0.1:1", true).unwrap();
        let client = skep_net::Client::new(skep_net::client::Options::default());
        let none = BTreeMap::new();
        let collector = Collector::new(endpoint, &none, &none, &ResourceFacts::default(), client);
        Traces::new(&collector, ratio, Duration::from_secs(5)).unwrap()
    }

    fn span(traces: &Traces) -> RequestSpan {
        RequestSpan::start(traces, SystemTime::now(), &Carrier::default(), true, SpanFacts::default)
    }

    #[test]
    fn spans_that_find_no_room_are_dropped_and_counted() {
        let (traces, _task) = traces(1.0);
        for _ in 0..QUEUE + 7 {
            span(&traces).abandon();
        }
        assert_eq!(traces.dropped(), 7);
    }

    #[test]
    fn a_part_of_the_traces_is_recorded() {
        let (none, _task) = traces(0.0);
        assert!((0..100).all(|_| !span(&none).is_recorded()));
        let (some, _task) = traces(0.5);
        let recorded = (0..1000).filter(|_| span(&some).is_recorded()).count();
        assert!((350..650).contains(&recorded), "{recorded}");
    }

    #[tokio::test(start_paused = true)]
    async fn spans_that_a_collector_does_not_take_are_counted_after_some_attempts() {
        let (traces, task) = traces(1.0);
        tokio::spawn(task.run());
        span(&traces).abandon();
        let (sender, sent) = oneshot::channel();
        traces.queue.send(Command::Flush(sender)).await.unwrap();
        sent.await.unwrap();
        assert_eq!(traces.dropped(), 1);
    }
}
