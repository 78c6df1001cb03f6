//! What no file may contain.

use super::code;

/// A file longer than this holds more than one idea.
const MOST_LINES: usize = 600;

/// Methods of the Kubernetes client that write by PUT and have no other meaning.
const PUTS: &[&str] = &["replace_status", "replace_scale", "replace_subresource", "replace_ephemeral_containers"];

/// `private` are directories of this machine.
pub(super) fn check(path: &str, text: &str, private: &[&str]) -> Vec<String> {
    let mut complaints = private_paths(path, text, private);
    if std::path::Path::new(path).extension().is_some_and(|extension| extension == "rs") {
        complaints.extend(too_long(path, text));
        if !code::is_for_tests(path) {
            complaints.extend(puts(path, text));
        }
    }
    complaints
}

fn too_long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MOST_LINES)
        .then(|| format!("{path}: {lines} lines are more than {MOST_LINES}: split it, one idea per file"))
}

/// Somebody's home, or this checkout: it means nothing on another machine.
fn private_paths(path: &str, text: &str, private: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // A path of one part, such as a checkout in `/src`, is a word like any other.
        let ours = private.iter().find(|place| place.matches('/').count() > 1 && line.contains(**place));
        if ours.is_some() || homes(line) {
            complaints
                .push(format!("{path}:{}: a path of somebody's machine: write it relative, or take it out", index + 1));
        }
    }
    complaints
}

/// Whether a line names a file in a home directory. Written so that this line does not.
fn homes(line: &str) -> bool {
    let after = |place: &str| {
        line.match_indices(place).any(|(start, _)| {
            let before = line.get(..start).and_then(|before| before.chars().next_back());
            let after = line.get(start + place.len()..).and_then(|after| after.chars().next());
            // The user inside the registry server's image, whose home is part of that image's contract.
            let in_an_image = line.get(start + place.len()..).is_some_and(|after| after.starts_with("appuser/"));
            !before.is_some_and(|c| c.is_alphanumeric() || "._-".contains(c))
                && after.is_some_and(char::is_alphanumeric)
                && !in_an_image
        })
    };
    [concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/")].into_iter().any(after)
}

/// Writes by PUT: they take back what others wrote since the object was read. `replace` is also a method of texts and
/// cells, which take fewer arguments than the client's three.
fn puts(path: &str, text: &str) -> Vec<String> {
    let lines = code::lines(text);
    let mut complaints = Vec::new();
    for (position, (number, line)) in lines.iter().enumerate() {
        let by_name = PUTS.iter().any(|name| line.contains(&format!(".{name}(")));
        let by_arguments = line.match_indices(".replace(").any(|(start, call)| {
            let rest = line.get(start + call.len()..).unwrap_or_default();
            let following = lines.iter().skip(position + 1).map(|(_, line)| *line);
            arguments([rest].into_iter().chain(following)) >= 3
        });
        if by_name || by_arguments {
            complaints.push(format!(
                "{path}:{number}: a write by PUT takes back what others wrote: use server-side apply or a merge patch"
            ));
        }
    }
    complaints
}

/// Counts the arguments of a call, given the text behind its opening parenthesis.
fn arguments<'a>(lines: impl Iterator<Item = &'a str>) -> usize {
    let (mut depth, mut count, mut pending) = (0_usize, 0, false);
    for line in lines {
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                ')' | ']' | '}' if depth == 0 => return count + usize::from(pending),
                ')' | ']' | '}' => depth -= 1,
                '(' | '[' | '{' => depth += 1,
                ',' if depth == 0 => {
                    count += usize::from(pending);
                    pending = false;
                    continue;
                }
                '"' => skip_text(&mut characters, '"'),
                // A character, not a lifetime: closed after one character, or after an escape.
                '\'' if characters.clone().nth(1) == Some('\'') || characters.peek() == Some(&'\\') => {
                    skip_text(&mut characters, '\'');
                }
                _ => {}
            }
            pending |= !character.is_whitespace();
        }
    }
    count + usize::from(pending)
}

/// Skips to the end of a quoted text.
fn skip_text(characters: &mut impl Iterator<Item = char>, quote: char) {
    while let Some(character) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "crates/operator/src/apply.rs";

    fn count(text: &str) -> usize {
        check(PLACE, text, &[]).len()
    }

    #[test]
    fn a_put_is_known_by_its_three_arguments() {
        assert_eq!(count("api.replace(name, &PostParams::default(), &object).await?;"), 1);
        assert_eq!(count("api\n    .replace(\n        &name,\n        &params(1, 2),\n        &object,\n    )\n"), 1);
        assert_eq!(count("api.replace_status(name, &params, &object).await?;"), 1);
    }

    #[test]
    fn other_replacements_are_fine() {
        assert_eq!(count("text.replace(\"a, b, c\", \"(\");"), 0);
        assert_eq!(count("text.replace(',', \"\\\", \");"), 0);
        assert_eq!(count("cell.replace(Some((1, 2, 3)));"), 0);
        assert_eq!(count("// never api.replace(name, &params, &object)\n"), 0);
        assert!(check("crates/api/tests/it/main.rs", "api.replace(a, b, c);", &[]).is_empty());
    }

    #[test]
    fn paths_of_a_machine_are_found_in_any_file() {
        let home = concat!("see /ho", "me/me/notes");
        let root = concat!("see /ro", "ot/notes");
        assert_eq!(check("docs/a.md", home, &[]).len(), 1);
        assert_eq!(check("docs/a.md", root, &[]).len(), 1);
        assert_eq!(check("docs/a.md", "in /build/skep/target", &["/build/skep"]).len(), 1);
        assert!(check("docs/a.md", "in /src/main.rs", &["/src"]).is_empty());
        assert!(check("docs/a.md", "~/notes, containerd/root/x", &[]).is_empty());
    }

    #[test]
    fn long_files_are_listed_with_their_length() {
        let found = check("crates/api/src/lib.rs", &"\n".repeat(601), &[]);
        assert!(found[0].contains("601 lines"), "{found:?}");
        assert!(check("docs/long.md", &"\n".repeat(601), &[]).is_empty());
    }
}
