//! The parts of a message whose positions are kept, and the objects that contain them.
//!
//! These tables are the only place that knows the layout of a message: parsing follows them, and so does a splice that
//! need not parse again.

use crate::names::Level;

/// A part of a message whose position is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
    Name,
    Uri,
    Arguments,
    Meta,
    Ref,
    ProgressToken,
    RequestId,
    TaskId,
    MetaProgressToken,
    ProtocolVersion,
    ClientInfo,
    ClientCapabilities,
}

/// An object whose members are parsed.
#[derive(Debug)]
pub(crate) struct Table {
    /// The known names. The first ones are the parts, in the same order.
    pub(crate) level: Level,
    parts: &'static [Part],
}

/// The message itself.
pub(crate) static MESSAGE: Table = Table {
    level: Level { place: "the message", known: &["jsonrpc", "id", "method", "params", "result", "error"] },
    parts: &[Part::Jsonrpc, Part::Id, Part::Method, Part::Params, Part::Result, Part::Error],
};

/// The parameters of a request or notification. The names without a part are those that policies evaluate for some
/// method.
static PARAMS: Table = Table {
    level: Level {
        place: "`params`",
        known: &[
            "name",
            "uri",
            "arguments",
            "_meta",
            "ref",
            "progressToken",
            "requestId",
            "taskId",
            "clientInfo",
            "cursor",
            "elicitationId",
            "level",
            "message",
            "method",
            "modelPreferences",
            "notifications",
            "systemPrompt",
        ],
    },
    parts: &[
        Part::Name,
        Part::Uri,
        Part::Arguments,
        Part::Meta,
        Part::Ref,
        Part::ProgressToken,
        Part::RequestId,
        Part::TaskId,
    ],
};

static META: Table = Table {
    level: Level {
        place: "`params._meta`",
        known: &[
            "progressToken",
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol/clientInfo",
            "io.modelcontextprotocol/clientCapabilities",
            "io.modelcontextprotocol/logLevel",
        ],
    },
    parts: &[Part::MetaProgressToken, Part::ProtocolVersion, Part::ClientInfo, Part::ClientCapabilities],
};

/// The target of a completion: policies evaluate its name.
static REF: Table = Table { level: Level { place: "`params.ref`", known: &["name", "uri"] }, parts: &[] };

/// Policies and webhooks evaluate arguments, whose names the server defines: no duplicates, any case.
static ARGUMENTS: Table = Table { level: Level { place: "`params.arguments`", known: &[] }, parts: &[] };

// === impl Part ===

impl Part {
    pub(crate) const COUNT: usize = Self::ClientCapabilities as usize + 1;

    /// The part at a path.
    pub(crate) fn at(path: &[&str]) -> Option<Self> {
        match path {
            [name] => MESSAGE.part_named(name),
            ["params", name] => PARAMS.part_named(name),
            ["params", "_meta", name] => META.part_named(name),
            _ => None,
        }
    }

    /// The table for the part's own members, when it is an object.
    pub(crate) fn inside(self) -> Option<&'static Table> {
        match self {
            Self::Params => Some(&PARAMS),
            Self::Meta => Some(&META),
            Self::Ref => Some(&REF),
            Self::Arguments => Some(&ARGUMENTS),
            _ => None,
        }
    }

    /// Whether replacing the value of this part changes nothing in the head but positions.
    pub(crate) fn is_leaf(self) -> bool {
        matches!(
            self,
            Self::Id
                | Self::Name
                | Self::Uri
                | Self::ProgressToken
                | Self::RequestId
                | Self::TaskId
                | Self::MetaProgressToken
                | Self::ProtocolVersion
                | Self::ClientInfo
                | Self::ClientCapabilities
        )
    }
}

// === impl Table ===

impl Table {
    /// The part at a position in the table of names.
    pub(crate) fn part(&self, position: usize) -> Option<Part> {
        self.parts.get(position).copied()
    }

    fn part_named(&self, name: &str) -> Option<Part> {
        self.level.known.iter().position(|known| *known == name).and_then(|position| self.part(position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found_by_its_path() {
        const META_KEY: &str = "io.modelcontextprotocol/clientInfo";
        assert_eq!(Part::at(&["jsonrpc"]), Some(Part::Jsonrpc));
        assert_eq!(Part::at(&["error"]), Some(Part::Error));
        assert_eq!(Part::at(&["params", "name"]), Some(Part::Name));
        assert_eq!(Part::at(&["params", "taskId"]), Some(Part::TaskId));
        assert_eq!(Part::at(&["params", "_meta", "progressToken"]), Some(Part::MetaProgressToken));
        assert_eq!(Part::at(&["params", "_meta", META_KEY]), Some(Part::ClientInfo));
        for none in [&["params", "cursor"][..], &["other"], &[], &["result", "name"], &["params", "ref", "name"]] {
            assert_eq!(Part::at(none), None, "{none:?}");
        }
    }

    #[test]
    fn tables_fit_their_bits() {
        for table in [&MESSAGE, &PARAMS, &META, &REF, &ARGUMENTS] {
            assert!(table.level.known.len() <= 64 && table.parts.len() <= table.level.known.len());
        }
        let parts: usize = [&MESSAGE, &PARAMS, &META].iter().map(|table| table.parts.len()).sum();
        assert_eq!(parts, Part::COUNT);
    }
}
