//! Names of generated code, as programs write them for `perf`: `/tmp/perf-PID.map`.
//!
//! Source: Linux, tools/perf/Documentation/jit-interface.txt: lines of a start address and a size, both hexadecimal, and a name.
//! V8 (`node --perf-basic-prof`), the JVM (`-XX:+DumpPerfMapAtExit`), CPython (`-X perf`), .NET and others write them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Files beyond this many bytes are not read.
const MOST_BYTES: u64 = 1 << 30;

/// Functions in generated code, by their addresses in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeneratedNames {
    /// By start: end and name. They do not overlap.
    functions: BTreeMap<u64, (u64, Box<str>)>,
}

impl GeneratedNames {
    /// What a process has written; nothing, where there is no such file, it cannot be read, or it belongs to somebody else.
    /// Cost: linear in the file.
    pub fn of_process(pid: u32) -> Self {
        let path = format!("/tmp/perf-{pid}.map");
        let is_trusted = fs::symlink_metadata(&path).is_ok_and(|file| {
            let own = fs::metadata("/proc/self").map_or(0, |own| own.uid());
            file.is_file() && file.len() <= MOST_BYTES && (own == 0 || [0, own].contains(&file.uid()))
        });
        let text = if is_trusted { fs::read(path).unwrap_or_default() } else { Vec::new() };
        let mut names = Self::default();
        names.add(&String::from_utf8_lossy(&text));
        names
    }

    /// Takes in the text of such a file. What it says later goes before what it said earlier: memory is used again. Other lines
    /// are passed over.
    pub fn add(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.trim_start().splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (Some(start), Some(bytes)) = (number(), number()) else { continue };
            let (Some(name), Some(end)) = (words.next().map(str::trim), start.checked_add(bytes)) else {
                continue;
            };
            if bytes > 0 && !name.is_empty() {
                self.insert(start, end, name);
            }
        }
    }

    /// Takes in another process's.
    pub fn extend(&mut self, others: Self) {
        for (start, (end, name)) in others.functions {
            self.insert(start, end, &name);
        }
    }

    fn insert(&mut self, start: u64, end: u64, name: &str) {
        // Those that overlap begin below the end, and stand beside each other.
        while let Some((&other, &(other_end, _))) = self.functions.range(..end).next_back()
            && other_end > start
        {
            self.functions.remove(&other);
        }
        self.functions.insert(start, (end, name.into()));
    }

    /// The function around an address.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_go_before_earlier_ones() {
        let mut names = GeneratedNames::default();
        names.add("1000 100 first one\n1100 100 JS:*second t.js:3:4\n\nno line\nzz 10 x\n1080 90 third\n2000 0 none\n");
        assert_eq!(names.function_at(0x1100), Some("third"));
        assert_eq!(names.function_at(0x110f), Some("third"));
        assert_eq!(names.function_at(0x1110), None, "both that overlap are gone");
        assert_eq!(names.function_at(0x1000), None);
        names.add("0x1000 0x80 again\nffffffffffffff00 100 overflows\nffffffffffffff00 ff last");
        assert_eq!(names.function_at(0x107f), Some("again"));
        assert_eq!(names.function_at(0x1080), Some("third"));
        assert_eq!(names.function_at(u64::MAX - 1), Some("last"));
        assert_eq!(names.function_at(0), None);
    }

    #[test]
    fn names_have_spaces() {
        let mut names = GeneratedNames::default();
        names.add("  7f0010 20 int T.run(int[], double) [tier 4]\r\n");
        assert_eq!(names.function_at(0x7f_0010), Some("int T.run(int[], double) [tier 4]"));
        assert_eq!(GeneratedNames::of_process(u32::MAX), GeneratedNames::default());
    }
}
