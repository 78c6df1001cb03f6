//! Calls of composite tools: a task runs the steps, and what they call goes the way of any call.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use skep_mcp::list::{Element, List};
use skep_mcp::{Era, Kind, Message, Raw, answer, method, value};
use skep_net::Budget;
use skep_upstream::{BoxFuture, Call, CallError, ClientContext, PendingResponse, Replies, SessionId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::recorded::RecordedRun;
use super::session::{Asked, InFlight};
use super::subscriptions::TaskCall;
use super::{VirtualUpstream, answers};
use crate::catalogue::meta;
use crate::composite::{Answer, CompositeTool, RESULTS, StepCalls, StepError, ToolResult, Workflow};
use crate::view::ClientView;

/// How many messages before a response may wait to be read.
const INTERIM: usize = 16;

/// What the steps of one run call, in the name of the client that called the composite tool.
#[derive(Debug)]
struct ClientSteps {
    upstream: Arc<VirtualUpstream>,
    view: Arc<ClientView>,
    session: Option<SessionId>,
    client: ClientContext,
    budget: Budget,
    era: Era,
    /// Where goes what comes before the response, if the client takes it.
    interim: Option<mpsc::Sender<Bytes>>,
}

// === impl VirtualUpstream ===

impl VirtualUpstream {
    /// Runs a composite tool. The run ends when the call is dropped.
    pub(super) fn run_composite(
        self: Arc<Self>,
        call: &Call,
        tool: Arc<CompositeTool>,
        view: Arc<ClientView>,
    ) -> Result<Replies, CallError> {
        let id = call.message.id().ok_or(CallError::NotSent)?;
        let arguments = method::arguments(&call.message).map(serde_json::from_slice::<Map<String, Value>>);
        let Ok(arguments) = arguments.transpose() else {
            return answers::refuse(call, answer::INVALID_PARAMS, "arguments must be an object");
        };
        let (interim, received) = if call.takes_interim { Some(mpsc::channel(INTERIM)).unzip() } else { (None, None) };
        let name = tool.name.clone();
        let mut client = call.client.clone();
        let run_id = uuid::Uuid::new_v4().to_string();
        let recorded = RecordedRun::begin(&self.instruments, &mut client, &run_id, &name);
        let steps = ClientSteps {
            upstream: self.clone(),
            view,
            session: call.session.clone(),
            client,
            budget: call.budget.clone(),
            era: call.era,
            interim,
        };
        let until = Instant::now() + tool.timeout();
        let workflow = Workflow::new(tool, arguments.unwrap_or_default(), Arc::new(steps));
        let workflow = workflow.named(run_id).observed(recorded.clone());
        let (outcome, response) = oneshot::channel();
        let (info, era, own) = (self.info.clone(), call.era, id.clone());
        let task = tokio::spawn(
            async move {
                let ran = workflow.run().await;
                recorded.end(ran.as_ref().err());
                match &ran {
                    Ok(_) => tracing::info!(tool = name, "composite tool completed"),
                    Err(error) => tracing::warn!(tool = name, %error, "composite tool failed"),
                }
                let result = answers::composite(&info, era, ran.map_err(|error| error.to_string()));
                let response = Message::response(&own, &result).ok_or(CallError::NotSent);
                // The client may have left.
                let _left = outcome.send(response.map(Box::new));
            }
            .in_current_span(),
        );
        let registered =
            call.session.as_ref().map(|session| self.register(session, &id, InFlight::Task(task.abort_handle())));
        let response =
            PendingResponse::new(response, Box::new(TaskCall { task: task.abort_handle(), until: Some(until) }));
        let response = response.then(move |response| {
            drop(registered);
            // The client cancelled it.
            response.map_err(|error| if error == CallError::Disconnected { CallError::Cancelled } else { error })
        });
        Ok(Replies { interim: received, response })
    }
}

// === impl ClientSteps ===

impl ClientSteps {
    async fn call_tool(&self, tool: &str, arguments: Map<String, Value>) -> Result<ToolResult, StepError> {
        let failed = |error: CallError| StepError::Call(format!("tool `{tool}`: {error}"));
        let Some((_, route)) = self.view.view.tool_of_step(tool) else {
            return Err(StepError::Call(format!("tool `{tool}` does not exist any more")));
        };
        let backend = self.upstream.backends.get(&route.backend);
        let backend = backend.ok_or_else(|| StepError::Call(format!("backend `{}` is gone", route.backend)))?;
        let id = format!("step-{}", uuid::Uuid::new_v4());
        let mut params = json!({ "name": *route.original, "arguments": arguments });
        if let (Era::Modern, Some(params)) = (self.era, params.as_object_mut()) {
            params.insert("_meta".to_owned(), meta());
        }
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let message = Message::parse(request.to_string().into()).map_err(|_malformed| failed(CallError::Malformed))?;
        let call = Call {
            session: self.session.clone(),
            takes_interim: self.interim.is_some(),
            client: self.client.clone(),
            budget: self.budget.clone(),
            ..Call::new(message, self.era)
        };
        let Replies { interim, mut response } = self.upstream.clone().forward(call, &backend).await.map_err(failed)?;
        let response = match (interim, &self.interim) {
            (Some(interim), Some(client)) => relayed(interim, &mut response, client).await,
            _ => response.response().await,
        };
        let response = response.map_err(failed)?;
        if response.kind() == Kind::Error {
            let text = response.error().and_then(|error| value::find_text(error, &["message"])).unwrap_or_default();
            return Err(StepError::Call(format!("tool `{tool}`: {}", value::clipped(&text))));
        }
        let kind = response.result().and_then(|result| value::find_text(result, &["resultType"]));
        if let Some(kind) = kind.filter(|kind| kind != "complete") {
            let kind = value::clipped(&kind);
            return Err(StepError::Call(format!("tool `{tool}`: its result is `{kind}`, which a step cannot take")));
        }
        // Parsed, it takes many times its size.
        if response.result().is_some_and(|result| result.len() > RESULTS) {
            return Err(StepError::TooLarge(RESULTS));
        }
        ToolResult::of(&response).ok_or_else(|| failed(CallError::Malformed))
    }

    /// Sends the client a request of its own, and waits for the response.
    async fn ask(&self, message: &str, schema: &Value) -> Result<Answer, StepError> {
        let (Era::Legacy, Some(session)) = (self.era, &self.session) else {
            return Err(StepError::NoElicitation("it has no session"));
        };
        let Some(interim) = &self.interim else { return Err(StepError::NoElicitation("it takes no events")) };
        let (sender, answered) = oneshot::channel();
        let asked = self.upstream.sessions.with(session, |session| {
            session.can_elicit().then(|| session.ask(Asked::Step(sender), None, None)).flatten()
        });
        let Some(id) = asked.flatten() else {
            return Err(StepError::NoElicitation("it does not declare the capability `elicitation`"));
        };
        let params = json!({ "message": message, "requestedSchema": schema });
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"elicitation/create","params":{}}}"#,
            id.raw(),
            Raw::value(&params).as_str()
        );
        interim.send(request.into()).await.map_err(|_left| StepError::NoElicitation("it left"))?;
        let response = answered.await.map_err(|_closed| StepError::NoElicitation("its session ended"))?;
        let result = response.result().and_then(|result| serde_json::from_slice::<Value>(result).ok());
        let Some(result) = result else { return Err(StepError::NoElicitation("it responded with an error")) };
        Ok(match result.get("action").and_then(Value::as_str) {
            Some("accept") => Answer::Accepted(result.get("content").cloned().unwrap_or_default()),
            Some("decline") => Answer::Declined,
            _ => Answer::Cancelled,
        })
    }
}

/// The response of a step, once all that came before it is with the client. A client that left ends the run.
async fn relayed(
    mut interim: mpsc::Receiver<Bytes>,
    response: &mut PendingResponse,
    client: &mpsc::Sender<Bytes>,
) -> Result<Message, CallError> {
    let response = loop {
        tokio::select! {
            Some(bytes) = interim.recv() => {
                let _left = client.send(bytes).await;
            }
            response = response.response() => break response,
        }
    };
    // What came before the response stays before it.
    while let Ok(bytes) = interim.try_recv() {
        let _left = client.send(bytes).await;
    }
    response
}

impl StepCalls for ClientSteps {
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<ToolResult, StepError>> {
        Box::pin(self.call_tool(tool, arguments))
    }

    fn elicit<'a>(&'a self, message: &'a str, schema: &'a Value) -> BoxFuture<'a, Result<Answer, StepError>> {
        Box::pin(self.ask(message, schema))
    }

    fn schema(&self, tool: &str) -> Option<Value> {
        let (_, route) = self.view.view.tool_of_step(tool)?;
        let element = Element::parse(List::Tools, &route.shown).ok()?;
        let tool: Value = serde_json::from_str(element.raw).ok()?;
        tool.get("inputSchema").cloned()
    }
}
