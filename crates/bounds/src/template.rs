//! The scan of Go templates: `{{…}}` with parentheses, and blocks from `{{if}}`, `{{range}}`, `{{with}}`, `{{define}}` and
//! `{{block}}` to `{{end}}`.

use crate::{BoundsError, EXPRESSION_DEPTH, TEMPLATE_BYTES};

/// What separates tokens in an action.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Checks the size and depth of a template. The parser reports invalid templates.
pub fn template(text: &str) -> Result<(), BoundsError> {
    crate::size(text, TEMPLATE_BYTES)?;
    // For each open block, how many conditionals it nests: `{{else if}}` is another block inside the first.
    let mut blocks: Vec<usize> = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("{{") {
        let action = Action::read(behind)?;
        rest = action.behind;
        match (action.first, action.second) {
            ("if" | "range" | "with" | "define" | "block", _) => blocks.push(1),
            ("else", "if" | "with") => blocks.iter_mut().last().into_iter().for_each(|open| *open += 1),
            ("end", _) => drop(blocks.pop()),
            _ => {}
        }
        if blocks.iter().sum::<usize>() + action.depth > EXPRESSION_DEPTH {
            return Err(BoundsError::Depth { most: EXPRESSION_DEPTH });
        }
    }
    Ok(())
}

/// What stands between `{{` and `}}`.
struct Action<'text> {
    first: &'text str,
    second: &'text str,
    /// How deep its parentheses are nested.
    depth: usize,
    behind: &'text str,
}

// === impl Action ===

impl<'text> Action<'text> {
    /// Reads from behind `{{`. An action that does not end takes the whole rest.
    fn read(text: &'text str) -> Result<Self, BoundsError> {
        let inside = trimmed(text).trim_start_matches(BLANKS);
        if let Some(comment) = inside.strip_prefix("/*") {
            let behind = comment.split_once("*/").map_or("", |(_, behind)| behind);
            return Ok(Self { first: "", second: "", depth: 0, behind });
        }
        // INVARIANT: each character is read a fixed number of times. What reaches behind the action would make the
        // time grow with the square of the text.
        let (depth, behind) = Self::skip(inside)?;
        let own = inside.get(..inside.len() - behind.len()).unwrap_or_default();
        let mut words = own.split(|next: char| !next.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let is_keyword = own.starts_with(|next: char| next.is_ascii_alphabetic());
        let (first, second) = match (words.next(), words.next()) {
            (Some(first), second) if is_keyword => (first, second.unwrap_or_default()),
            _ => ("", ""),
        };
        Ok(Self { first, second, depth, behind })
    }

    /// The depth of an action's parentheses, and what stands behind it.
    fn skip(inside: &'text str) -> Result<(usize, &'text str), BoundsError> {
        let (mut open, mut deepest) = (0_usize, 0);
        let mut rest = inside;
        while let Some(next) = rest.chars().next() {
            if let Some(behind) = rest.strip_prefix("}}") {
                return Ok((deepest, behind));
            }
            rest = match next {
                '"' | '\'' | '`' => after_string(rest, next),
                _ => rest.split_at_checked(next.len_utf8()).map_or("", |(_, behind)| behind),
            };
            match next {
                '(' => open += 1,
                ')' => open = open.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(open);
            if deepest > EXPRESSION_DEPTH {
                return Err(BoundsError::Depth { most: EXPRESSION_DEPTH });
            }
        }
        Ok((deepest, ""))
    }
}

/// What stands behind a trim marker, which is a `-` and a blank; all of the text if it has none.
fn trimmed(text: &str) -> &str {
    text.strip_prefix('-').filter(|rest| rest.starts_with(BLANKS)).unwrap_or(text)
}

/// What stands behind the string with which a text begins. Only `"` and `'` know escapes.
fn after_string(text: &str, quote: char) -> &str {
    let mut characters = text.chars();
    characters.next();
    while let Some(next) = characters.next() {
        if next == '\\' && quote != '`' {
            characters.next();
        } else if next == quote {
            break;
        }
    }
    characters.as_str()
}
