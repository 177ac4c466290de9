//! Words of commands that memlens tells people to type.

use std::path::Path;

/// A path as a shell's word; what of it is not UTF-8 is lost, as wherever it is shown.
pub fn path(path: &Path) -> String {
    word(&path.to_string_lossy())
}

/// A command line of these words.
pub fn command(words: &[String]) -> String {
    words.iter().map(|it| word(it)).collect::<Vec<_>>().join(" ")
}

fn word(text: &str) -> String {
    // Words of a program's command line, and paths, have no NUL.
    shlex::try_quote(text).map_or_else(|_| text.to_owned(), |quoted| quoted.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_same_words() {
        let words = ["awk", "{print $1}", "a b", "it's", "", "--x=1", "/tmp/ü.memlens", "a\nb", "*"];
        let words = words.map(str::to_owned);
        let script = format!("printf '%s|' {}", command(&words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh");
        assert_eq!(String::from_utf8(output.stdout).expect("UTF-8"), words.join("|") + "|");
        assert_eq!(path(Path::new("/tmp/plain-1.memlens")), "/tmp/plain-1.memlens");
    }
}
