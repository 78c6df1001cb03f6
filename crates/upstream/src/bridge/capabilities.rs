//! What the bridge declares to a legacy server of its modern clients.

use skep_mcp::bridge::{ModernClient, RequiredCapability};
use skep_mcp::value;

/// The extension that costs nothing to relay: it is about resources that clients read.
const UI: &str = "io.modelcontextprotocol/ui";

/// What a session declares of its clients: as much of it as a server may make something of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Capabilities([bool; 6]);

// === impl Capabilities ===

impl Capabilities {
    pub(super) fn of(client: &ModernClient) -> Self {
        let declared = client.capabilities();
        let has = |path: &[&str]| value::has(declared, path);
        Self([
            has(&["elicitation"]) && (!has(&["elicitation", "url"]) || has(&["elicitation", "form"])),
            RequiredCapability::URL.is_in(declared),
            has(&["sampling"]),
            has(&["sampling", "tools"]),
            has(&["roots"]),
            has(&["extensions", UI]),
        ])
    }

    pub(super) fn to_json(self) -> String {
        let Self([form, url, sampling, tools, roots, ui]) = self;
        let member = |name: &str, is_in: bool, inside: &str| is_in.then(|| format!(r#""{name}":{{{inside}}}"#));
        let joined = |members: [Option<String>; 2]| members.into_iter().flatten().collect::<Vec<_>>().join(",");
        let elicitation = joined([member("form", form, ""), member("url", url, "")]);
        let sampling_of = joined([member("tools", tools, ""), None]);
        let pages = format!(r#""{UI}":{{"mimeTypes":["text/html;profile=mcp-app"]}}"#);
        let members = [
            member("elicitation", form || url, &elicitation),
            member("sampling", sampling, &sampling_of),
            member("roots", roots, ""),
            member("extensions", ui, &pages),
        ];
        format!("{{{}}}", members.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}
