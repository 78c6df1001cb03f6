//! Writing YAML, laid out as Go's `yaml.v3` does it: indented to the next multiple of four, lists indented under their
//! key, texts of several lines as blocks, quotes only where a text would otherwise be read as something else.

mod scalar;

use crate::json::Json;
use scalar::Style;

/// Members stand on multiples of this.
const INDENT: usize = 4;
/// What `- ` takes.
const BULLET: usize = 2;

impl Json {
    /// A YAML document, ending with a new line.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        write(&mut text, self, Place::Document);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

/// Where a value stands; with the column that its surroundings start at.
#[derive(Clone, Copy)]
enum Place {
    /// It is all there is.
    Document,
    /// Behind `key:`, which is written without a space.
    Member(usize),
    /// Behind `- `.
    Item(usize),
}

impl Place {
    /// The column that the lines of a value here start at.
    fn column(self) -> usize {
        match self {
            Self::Document => 0,
            Self::Member(column) => (column / INDENT + 1) * INDENT,
            Self::Item(column) => column + BULLET,
        }
    }
}

fn write(text: &mut String, json: &Json, place: Place) {
    let column = place.column();
    match json {
        Json::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                start_line(text, place, column, index);
                text.push_str("- ");
                write(text, item, Place::Item(column));
                end_line(text);
            }
        }
        Json::Object(members) if !members.is_empty() => {
            for (index, (name, value)) in members.iter().enumerate() {
                start_line(text, place, column, index);
                text.push_str(&scalar::key(name));
                text.push(':');
                write(text, value, Place::Member(column));
                end_line(text);
            }
        }
        leaf => {
            if let Place::Member(_) = place {
                text.push(' ');
            }
            write_leaf(text, leaf, place);
        }
    }
}

/// The first line of a list or object goes on where a bullet stands; every other one is a line of its own.
fn start_line(text: &mut String, place: Place, column: usize, index: usize) {
    if index == 0 && matches!(place, Place::Item(_)) {
        return;
    }
    end_line(text);
    text.extend(std::iter::repeat_n(' ', column));
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn write_leaf(text: &mut String, leaf: &Json, place: Place) {
    match leaf {
        Json::Null => text.push_str("null"),
        Json::Bool(true) => text.push_str("true"),
        Json::Bool(false) => text.push_str("false"),
        Json::Number(number) => text.push_str(number.as_str()),
        Json::Array(_) => text.push_str("[]"),
        Json::Object(_) => text.push_str("{}"),
        Json::String(string) => match scalar::style(string) {
            Style::Block => write_block(text, string, place),
            _ => text.push_str(&scalar::key(string)),
        },
    }
}

/// `|`, how much it is indented if that cannot be seen, what happens to its end, and the lines.
fn write_block(text: &mut String, string: &str, place: Place) {
    let (outer, column) = match place {
        Place::Document => (0, INDENT),
        Place::Member(outer) | Place::Item(outer) => (outer, place.column()),
    };
    text.push('|');
    if string.starts_with([' ', '\n']) {
        text.push_str(&(column - outer).to_string());
    }
    let body = string.strip_suffix('\n');
    match body {
        None => text.push('-'),
        Some(body) if body.is_empty() || body.ends_with('\n') => text.push('+'),
        Some(_) => {}
    }
    for line in body.unwrap_or(string).split('\n') {
        text.push('\n');
        if !line.is_empty() {
            text.extend(std::iter::repeat_n(' ', column));
            text.push_str(line);
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests;
