//! Records every request in the audit log, whether the server, middleware or the router answers it. See [`skep_telemetry::audit`] for the events and the log.
//!
//! It is an observer in the first place of the chain, so it sees what every other middleware denies, and the response as it is sent to
//! the client. It changes nothing, and a request never waits for it.

mod record;

use std::io::Read as _;
use std::sync::Arc;

use skep_runconfig::run_config::{AuditConfig, MiddlewareConfig};
use skep_runconfig::{Field as _, Json, parameters};
use skep_telemetry::audit::{AuditLog, AuditSink, EventFilter, Output};

use self::record::Record;
use crate::chain::{ChainError, Context, Middleware, Step};
use crate::exchange::{Exchange, Head};
use crate::observe::{Observation, Observer};

/// The component that events name, unless the configuration names another one.
const COMPONENT: &str = "toolhive-api";
/// The largest configuration that is read from a file, in bytes.
const LARGEST: u64 = 1024 * 1024;
/// How much of a request and of a response an event carries, in bytes: unless the configuration says more, and at most.
const DATA: usize = 1024;
const MOST_DATA: usize = 1024 * 1024;

/// Records requests.
#[derive(Debug)]
struct Audit(Arc<Recorder>);

/// What an event is made with.
#[derive(Debug)]
struct Recorder {
    log: AuditLog,
    filter: EventFilter,
    component: String,
    server: String,
    /// `sse` or `http`.
    transport: &'static str,
    /// How much of a request an event carries; nothing if it carries none.
    request_data: Option<usize>,
    response_data: Option<usize>,
    detects_errors: bool,
    delegation_depth: usize,
}

pub(super) fn build(config: &MiddlewareConfig, context: &Context) -> Result<Option<Arc<dyn Middleware>>, ChainError> {
    let parameters = super::parameters::<parameters::Audit>(config)?;
    let recorder = Recorder::new(&parameters, context).map_err(|problem| super::invalid(&config.kind, problem))?;
    super::some(Audit(Arc::new(recorder)))
}

/// The settings, in the RunConfig or in a file.
fn settings(parameters: &parameters::Audit) -> Result<AuditConfig, String> {
    let path = &parameters.config_path;
    if let Some(settings) = &parameters.config_data {
        return Ok(settings.clone());
    }
    if path.is_empty() {
        return Ok(AuditConfig::default());
    }
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
    let read = read.map_err(|error| format!("config_path: cannot read `{path}`: {error}"))?;
    if read as u64 > LARGEST {
        return Err(format!("config_path: `{path}` has more than {LARGEST} bytes"));
    }
    let settings = Json::from_yaml(&text).map_err(|error| format!("the audit configuration `{path}`: {error}"))?;
    AuditConfig::read(settings).map_err(|error| format!("the audit configuration `{path}`: {error}"))
}

// === impl Recorder ===

impl Recorder {
    fn new(parameters: &parameters::Audit, context: &Context) -> Result<Self, String> {
        let settings = settings(parameters)?;
        let filter = EventFilter::new(&settings.event_types, &settings.exclude_event_types);
        let filter = filter.map_err(|error| error.to_string())?;
        let named = [&parameters.component, &settings.component].into_iter().find(|name| !name.is_empty());
        let component = named.map_or_else(|| COMPONENT.to_owned(), Clone::clone);
        let output = match settings.log_file.as_str() {
            "" => context.audit_output.clone(),
            path => Output::File(path.into()),
        };
        let log = AuditLog::open(output, &component).map_err(|error| format!("logFile: {error}"))?;
        let data = data_size(settings.max_data_size);
        let depth = usize::try_from(settings.max_delegation_depth).unwrap_or_default();
        Ok(Self {
            log,
            filter,
            component,
            server: context.server.clone(),
            transport: if parameters.transport_type == "sse" { "sse" } else { "http" },
            request_data: settings.include_request_data.then_some(data),
            response_data: settings.include_response_data.then_some(data),
            detects_errors: settings.detect_application_errors.unwrap_or(true),
            delegation_depth: if depth == 0 { skep_auth::delegation::DEEPEST } else { depth },
        })
    }
}

impl Observer for Recorder {
    fn begin(self: Arc<Self>, head: &mut Head) -> Box<dyn Observation> {
        Box::new(Record::new(self, head))
    }
}

impl Middleware for Audit {
    fn head<'a>(&'a self, head: &'a mut Head) -> Step<'a> {
        head.observe(self.0.clone());
        Step::NEXT
    }

    fn is_head_only(&self) -> bool {
        true
    }

    fn needs_backends(&self, exchange: &Exchange) -> bool {
        exchange.named_in().is_some()
    }

    fn audit_log(&self) -> Option<&AuditLog> {
        Some(&self.0.log)
    }

    fn audit_sink(&self) -> Option<AuditSink> {
        let Recorder { log, filter, component, .. } = &*self.0;
        Some(AuditSink::new(log.clone(), filter.clone(), component.clone()))
    }
}

/// How much data an event carries.
fn data_size(configured: i64) -> usize {
    let size = usize::try_from(configured).ok().filter(|size| *size > 0).unwrap_or(DATA);
    if size > MOST_DATA {
        tracing::warn!(configured = size, used = MOST_DATA, "maxDataSize of the audit log is too large");
    }
    size.min(MOST_DATA)
}

#[cfg(test)]
mod tests;
