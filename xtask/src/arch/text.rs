//! What no file may contain.

/// A file longer than this holds more than one idea.
const MOST_LINES: usize = 600;

/// `private` are directories of this machine.
pub(super) fn check(path: &str, text: &str, private: &[&str]) -> Vec<String> {
    let mut complaints = private_paths(path, text, private);
    if std::path::Path::new(path).extension().is_some_and(|extension| extension == "rs") {
        complaints.extend(too_long(path, text));
    }
    complaints
}

fn too_long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MOST_LINES)
        .then(|| format!("{path}: {lines} lines are more than {MOST_LINES}: split it, one idea per file"))
}

/// A path in a home directory, or of this checkout: it means nothing on another machine.
fn private_paths(path: &str, text: &str, private: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // A path of one part, such as a checkout in `/src`, is a word like any other.
        let ours = private.iter().find(|place| place.matches('/').count() > 1 && line.contains(**place));
        if ours.is_some() || homes(line) {
            complaints.push(format!("{path}:{}: a path of one machine: write it relative, or remove it", index + 1));
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

#[cfg(test)]
mod tests {
    use super::*;

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
