//! Whether a URI can be an expansion of a URI template (RFC 6570).
//!
//! Templates are data of servers and URIs are data of clients: what is compared is bounded, and takes time in proportion to the product of
//! their lengths at most.

/// The longest template and URI that are compared, in bytes.
const LONGEST: usize = 8 * 1024;
/// How many expressions a template may have.
const EXPRESSIONS: usize = 64;

/// A part of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    /// An expression. A simple one expands to something without a slash.
    Expression {
        is_simple: bool,
    },
}

/// Whether a URI can be an expansion of a template.
pub(super) fn matches(template: &str, uri: &str) -> bool {
    if template.len() > LONGEST || uri.len() > LONGEST {
        return false;
    }
    let Some(parts) = parts(template) else { return false };
    // Where the parts so far can end in the URI.
    let mut ends = vec![false; uri.len() + 1];
    if let Some(start) = ends.first_mut() {
        *start = true;
    }
    for part in parts {
        ends = step(&ends, part, uri);
    }
    ends.last() == Some(&true)
}

/// Where a part can end, given where it can begin.
fn step(starts: &[bool], part: Part<'_>, uri: &str) -> Vec<bool> {
    let mut ends = vec![false; starts.len()];
    match part {
        Part::Literal(text) => {
            for (start, _) in starts.iter().enumerate().filter(|(_, is_start)| **is_start) {
                let is_here = uri.get(start..).is_some_and(|rest| rest.starts_with(text));
                if let Some(end) = ends.get_mut(start + text.len()).filter(|_| is_here) {
                    *end = true;
                }
            }
        }
        Part::Expression { is_simple } => {
            // Whether some start before has reached this place.
            let mut is_open = false;
            for (place, is_start) in starts.iter().enumerate() {
                let before = place.checked_sub(1).and_then(|before| uri.as_bytes().get(before));
                is_open &= !(is_simple && before == Some(&b'/'));
                if let Some(end) = ends.get_mut(place) {
                    *end = is_open || *is_start && !is_simple;
                }
                is_open |= *is_start;
            }
        }
    }
    ends
}

/// The parts of a template. None if it is not one.
fn parts(template: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((literal, after)) = rest.split_once('{') {
        let (expression, after) = after.split_once('}')?;
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        parts.push(Part::Expression { is_simple: !expression.starts_with(['+', '#', '.', '/', ';', '?', '&']) });
        if parts.len() > 2 * EXPRESSIONS {
            return None;
        }
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_an_expansion_or_not() {
        for (template, uri, expected) in [
            ("file:///{path}", "file:///a.txt", true),
            ("file:///{path}", "file:///a/b.txt", false),
            ("file:///{+path}", "file:///a/b.txt", true),
            ("file:///{path}", "file:///", false),
            ("db://{table}/{id}", "db://t/1", true),
            ("db://{table}/{id}", "db://t/1/2", false),
            ("db://{table}/x/{id}/x", "db://x/x/x/x", true),
            ("a{x}a{y}a", "aaaaa", true),
            ("a{x}a{y}a", "aaa", false),
            ("search{?q,limit}", "search?q=a&limit=1", true),
            ("search{?q}", "search", true),
            ("plain", "plain", true),
            ("plain", "plainer", false),
            ("{broken", "{broken", false),
            ("é{x}", "éö", true),
        ] {
            assert_eq!(matches(template, uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn a_hostile_template_takes_little_time() {
        let template = "{a}".repeat(EXPRESSIONS);
        assert!(matches(&template, &"a".repeat(LONGEST)));
        assert!(!matches(&format!("{template}b"), &"a".repeat(LONGEST)));
        assert!(!matches(&"{a}x".repeat(EXPRESSIONS + 1), "x"));
        assert!(!matches("{a}", &"a".repeat(LONGEST + 1)));
    }
}
