//! The termination message of a container, which the kubelet reads: the operator shows it in the status of the
//! resource.

use std::io::Write as _;
use std::path::Path;

/// The default path of the termination message.
const FILE: &str = "/dev/termination-log";
/// The kubelet's limit for the message, in bytes.
const LONGEST: usize = 4096;

/// Writes a fatal error for the kubelet, if this is a container of a pod.
pub(crate) fn report(text: &str) {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        write(Path::new(FILE), text);
    }
}

/// Writes one line that is the same for the same error. The kubelet creates the file: where there is none, none is
/// created.
fn write(file: &Path, text: &str) {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.get(..line.floor_char_boundary(LONGEST)).unwrap_or_default();
    let opened = std::fs::OpenOptions::new().write(true).truncate(true).open(file);
    // The same text is on standard error, so nothing is lost if this fails.
    let _ignored = opened.and_then(|mut file| file.write_all(line.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fatal_error_is_one_line_in_the_file_of_the_kubelet_and_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("termination-log");
        write(&file, "lost");
        assert!(!file.exists());
        std::fs::write(&file, "what an earlier process said, which was longer").unwrap();
        write(&file, "cannot start:\n  the port is taken");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "cannot start: the port is taken");
        write(&file, &"ä".repeat(LONGEST));
        assert_eq!(std::fs::read(&file).unwrap().len(), LONGEST);
    }
}
