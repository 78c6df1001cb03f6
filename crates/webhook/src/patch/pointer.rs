//! Places in a JSON tree (RFC 6901).

use skep_runconfig::Json;

/// A place below the root.
// INVARIANT: it has at least one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// Parses a pointer that begins with `/`. Nothing if an escape is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let tokens = text.strip_prefix('/')?.split('/');
        tokens.map(unescape).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The first token: a member of the message.
    pub(super) fn first(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }

    /// How deep the place is.
    pub(super) fn depth(&self) -> usize {
        self.0.len()
    }

    /// Whether a place is this one, or within it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The value at the place.
    pub(super) fn find<'a>(&self, tree: &'a Json) -> Option<&'a Json> {
        self.0.iter().try_fold(tree, |value, token| match value {
            Json::Object(members) => members.get(token),
            Json::Array(items) => items.get(index(token)?),
            _ => None,
        })
    }

    /// The list or object that the place is in, and its last token.
    pub(super) fn parent<'a, 'b>(&'b self, tree: &'a mut Json) -> Option<(&'a mut Json, &'b str)> {
        let (last, path) = self.0.split_last()?;
        let parent = path.iter().try_fold(tree, |value, token| match value {
            Json::Object(members) => members.get_mut(token),
            Json::Array(items) => items.get_mut(index(token)?),
            _ => None,
        });
        Some((parent?, last))
    }
}

/// The position that a token names: digits, without a leading zero.
pub(super) fn index(token: &str) -> Option<usize> {
    let is_canonical = token == "0" || !token.starts_with('0');
    let is_number = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    if is_canonical && is_number { token.parse().ok() } else { None }
}

fn unescape(token: &str) -> Option<String> {
    let mut parts = token.split('~');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = match part.chars().next()? {
            '0' => part.strip_prefix('0').map(|rest| ('~', rest)),
            '1' => part.strip_prefix('1').map(|rest| ('/', rest)),
            _ => None,
        };
        let (character, rest) = rest?;
        plain.push(character);
        plain.push_str(rest);
    }
    Some(plain)
}
