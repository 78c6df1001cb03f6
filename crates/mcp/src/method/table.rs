//! The table of methods.

use super::{Arguments, Form, Method, Resource, Side};
use crate::era::Eras;
use Arguments::{Member, None, Params};
use Eras::{Both as AnyEra, Legacy, Modern};
use Form::{Notification, Request};
use Resource::{Fixed, Nowhere, Sampling, Text, TextOrNumber};
use Side::{Both, Client, Server};

const CURSOR: Resource = Text(&[&["cursor"]]);
const NAME: Resource = Text(&[&["name"]]);
const URI: Resource = Text(&[&["uri"]]);
const TASK: Resource = TextOrNumber("taskId");
const CLIENT: Resource = Text(&[&["clientInfo", "name"]]);
/// A prompt, or a template, or, in old clients, one string for either.
const REFERENCE: Resource = Text(&[&["ref", "name"], &["ref", "uri"], &["ref"]]);

const fn method(
    name: &'static str,
    from: Side,
    form: Form,
    eras: Eras,
    resource: Resource,
    arguments: Arguments,
) -> Method {
    Method { name, from, form, eras, resource, arguments }
}

/// Sorted by name. In the modern era, requests of a server to a client (elicitation, sampling, roots) are part of
/// results; tasks are an extension.
#[rustfmt::skip]
pub(super) const TABLE: &[Method] = &[
    method("completion/complete", Client, Request, AnyEra, REFERENCE, Params),
    method("elicitation/create", Server, Request, Legacy, Text(&[&["message"]]), Params),
    method("initialize", Client, Request, Legacy, CLIENT, Params),
    method("logging/setLevel", Client, Request, Legacy, Text(&[&["level"]]), None),
    method("notifications/cancelled", Both, Notification, AnyEra, TextOrNumber("requestId"), Params),
    method("notifications/elicitation/complete", Server, Notification, Legacy, Text(&[&["elicitationId"]]), Params),
    method("notifications/initialized", Client, Notification, Legacy, Fixed("initialized"), None),
    method("notifications/message", Server, Notification, AnyEra, Text(&[&["method"]]), None),
    method("notifications/progress", Both, Notification, AnyEra, TextOrNumber("progressToken"), Params),
    method("notifications/prompts/list_changed", Server, Notification, AnyEra, Fixed("prompts"), None),
    method("notifications/resources/list_changed", Server, Notification, AnyEra, Fixed("resources"), None),
    method("notifications/resources/updated", Server, Notification, AnyEra, Fixed("resources"), None),
    method("notifications/roots/list_changed", Client, Notification, Legacy, Fixed("roots"), None),
    method("notifications/subscriptions/acknowledged", Server, Notification, Modern, Nowhere, None),
    method("notifications/tasks", Server, Notification, Modern, TASK, Params),
    method("notifications/tasks/status", Both, Notification, Legacy, TASK, Params),
    method("notifications/tools/list_changed", Server, Notification, AnyEra, Fixed("tools"), None),
    method("ping", Both, Request, Legacy, Fixed("ping"), None),
    method("prompts/get", Client, Request, AnyEra, NAME, Member),
    method("prompts/list", Client, Request, AnyEra, CURSOR, None),
    method("resources/list", Client, Request, AnyEra, CURSOR, None),
    method("resources/read", Client, Request, AnyEra, URI, None),
    method("resources/subscribe", Client, Request, Legacy, URI, None),
    method("resources/templates/list", Client, Request, AnyEra, CURSOR, None),
    method("resources/unsubscribe", Client, Request, Legacy, URI, None),
    method("roots/list", Server, Request, Legacy, CURSOR, None),
    method("sampling/createMessage", Server, Request, Legacy, Sampling, Params),
    method("server/discover", Client, Request, Modern, Fixed("discover"), None),
    method("subscriptions/listen", Client, Request, Modern, Nowhere, None),
    method("tasks/cancel", Both, Request, AnyEra, TASK, None),
    method("tasks/get", Both, Request, AnyEra, TASK, None),
    method("tasks/list", Both, Request, Legacy, CURSOR, None),
    method("tasks/result", Both, Request, Legacy, TASK, None),
    method("tasks/update", Client, Request, Modern, TASK, None),
    method("tools/call", Client, Request, AnyEra, NAME, Member),
    method("tools/list", Client, Request, AnyEra, CURSOR, None),
];
