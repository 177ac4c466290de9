//! The file with what was measured.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::latency::{LatencyTable, WalkPoint};
use crate::rates::LineRates;
use crate::skid::LoopSkid;

/// Numbers of pages whose walks are told of, and cycles of one, at most: as many as a machine may have.
const MOST_WALKS: usize = 8;
const MOST_WALK_CYCLES: f64 = 65_536.0;

/// The format of the file.
const FORMAT: u32 = 1;
/// No core runs faster: the record, under liquid helium, is 9.1 GHz.
const SHORTEST_CYCLE_NS: f64 = 0.1;

/// What was measured on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Version of the file's format.
    pub format: u32,
    /// The processor as `/proc/cpuinfo` calls it: numbers of one are not for another.
    pub processor: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// What accesses cost.
    pub latency: LatencyTable,
    /// How fast lines follow each other; `None`: an older version did not measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<LineRates>,
    /// The event whose samples were looked at; `None`: none could be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Where its samples landed.
    #[serde(default)]
    pub skid: Vec<LoopSkid>,
}

/// Why a calibration cannot be read or written. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// The file system said no.
    #[error("{what} {path}: {error}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// It is no calibration.
    #[error("read {path}: it is no calibration of memlens: {why}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Calibration {
    /// With the processor's name and the time of now.
    pub fn now(
        latency: LatencyTable,
        lines: Option<LineRates>,
        event: Option<String>,
        skid: Vec<LoopSkid>,
    ) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            format: FORMAT,
            processor: processor(),
            measured_at: since.map_or(0, |since| since.as_secs()),
            latency,
            lines,
            event,
            skid,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If there is none, or it makes no sense.
    pub fn read(path: &Path) -> Result<Self, CalibrationError> {
        let text = fs::read_to_string(path).map_err(|error| CalibrationError::Io {
            what: "read",
            path: path.to_owned(),
            error,
        })?;
        let damaged = |why: String| CalibrationError::Damaged { path: path.to_owned(), why };
        let calibration: Self = toml::from_str(&text).map_err(|error| damaged(error.message().to_owned()))?;
        if calibration.format != FORMAT {
            return Err(damaged(format!("its format is {}, not {FORMAT}", calibration.format)));
        }
        let sane = |number: f64| (0.0..1e6).contains(&number);
        let latency = &calibration.latency;
        if let Some((name, _)) = latency.levels().iter().find(|(_, l)| !sane(l.cycles) || !sane(l.spread)) {
            return Err(damaged(format!("the latency of the {name} is no number of cycles")));
        }
        let rates = calibration.lines.iter().flat_map(LineRates::named);
        if let Some((name, _)) = rates.into_iter().find(|(_, rate)| !sane(rate.cycles) || !sane(rate.spread))
        {
            return Err(damaged(format!("the rate of lines ({name}) is no number of cycles")));
        }
        if !sane(latency.cycle_ns) || !sane(latency.cycle_spread) {
            return Err(damaged("the time of a core cycle is no number of nanoseconds".to_owned()));
        }
        // Version 0.1 before 26 November 2026 did so on Golden Cove, which adds constants several times a cycle.
        if latency.cycle_ns < SHORTEST_CYCLE_NS {
            let gigahertz = 1.0 / latency.cycle_ns;
            return Err(damaged(format!(
                "its core would run at {gigahertz:.0} GHz, so cycles were measured wrongly"
            )));
        }
        let points = latency.curve.iter().flat_map(|point| [Some(point.small_pages), point.huge_pages]);
        if points.flatten().any(|point| !sane(point.cycles) || !sane(point.spread)) {
            return Err(damaged("a point of the curve is no number of cycles".to_owned()));
        }
        let is_walk_sane = |walk: &WalkPoint| {
            (0.0..MOST_WALK_CYCLES).contains(&walk.cycles.cycles)
                && sane(walk.cycles.spread)
                && (1..1 << 31).contains(&walk.pages)
        };
        let are_walks_sane = latency.walks.len() <= MOST_WALKS && latency.walks.iter().all(is_walk_sane);
        if !are_walks_sane || !latency.walks.is_sorted_by(|near, far| near.pages < far.pages) {
            return Err(damaged("the page walks are no numbers of cycles of more and more pages".to_owned()));
        }
        Ok(calibration)
    }

    /// Writes it, in place of one that is there. Folders are made.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, path: &Path) -> Result<(), CalibrationError> {
        self.publish(path, |partial| fs::rename(partial, path))
    }

    /// Writes it unless there is one: of several that write at the same time, on whatever machines, the first one counts.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_first(&self, path: &Path) -> Result<(), CalibrationError> {
        self.publish(path, |partial| {
            match fs::hard_link(partial, path) {
                Err(_) if path.exists() => Ok(()),
                // A file system without links: the last one counts.
                Err(_) => fs::rename(partial, path),
                linked => linked,
            }
        })
    }

    /// A reader finds the old one or the new one, never half of one.
    fn publish(&self, path: &Path, rename: impl Fn(&Path) -> io::Result<()>) -> Result<(), CalibrationError> {
        let failed =
            |what: &'static str| move |error| CalibrationError::Io { what, path: path.to_owned(), error };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(failed("create the folder of"))?;
        }
        let text =
            toml::to_string(self).map_err(|error| failed("write")(io::Error::other(error.to_string())))?;
        // Others may do the same, also on other machines.
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let partial = path.with_extension(format!("{}-{}.partial", host.trim(), std::process::id()));
        let written = fs::write(&partial, text).and_then(|()| rename(&partial));
        let _ = fs::remove_file(&partial);
        written.map_err(failed("write"))
    }

    /// Whether it was measured on a processor of this kind.
    pub fn is_of_this_processor(&self) -> bool {
        self.processor == processor()
    }

    /// How many instructions after the one that waits its samples land, for loads and for stores;
    /// `None`: not measured.
    pub fn usual_skid(&self) -> Option<(usize, usize)> {
        let of = |name: &str| self.skid.iter().find(|skid| skid.name == name)?.usual();
        Some((of("load")?, of("store")?))
    }

    /// The largest spread, and of what.
    pub fn largest_spread(&self) -> (&'static str, f64) {
        let levels = self.latency.levels();
        let all = levels.iter().map(|(name, latency)| (*name, latency.spread));
        all.chain([("core cycle", self.latency.cycle_spread)])
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or(("core cycle", 0.0))
    }
}

/// `memlens/calibration.toml` in the user's configuration folder (XDG Base Directory Specification 0.8:
/// `$XDG_CONFIG_HOME`, else `~/.config`); `None` without a home.
pub fn default_path() -> Option<PathBuf> {
    Some(users_folder("XDG_CONFIG_HOME", ".config")?.join("calibration.toml"))
}

/// Where what was measured briefly is kept, for each kind of processor: `memlens/costs-….toml` (`latencies-….toml` was older versions', which
/// measured lines from memory in huge pages) in the user's cache folder
/// (`$XDG_CACHE_HOME`, else `~/.cache`); `None` without a home.
pub fn brief_path() -> Option<PathBuf> {
    // Home folders are shared by machines that differ.
    let processor = processor().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Some(users_folder("XDG_CACHE_HOME", ".cache")?.join(format!("costs-{processor}.toml")))
}

/// Whether files can be made in a folder.
pub fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// memlens's folder in one of the XDG base directories.
fn users_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute(variable).or_else(|| Some(absolute("HOME")?.join(in_home)))?;
    Some(folder.join("memlens"))
}

/// What `/proc/cpuinfo` calls the processor.
fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    // The name alone may be as vague as "AMD EPYC".
    let numbers: Vec<String> =
        ["cpu family", "model\t", "stepping"].iter().filter_map(|n| field(n)).collect();
    format!("{} ({})", field("model name").unwrap_or_else(|| "unknown".to_owned()), numbers.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Latency;

    fn calibration() -> Calibration {
        let latency = LatencyTable {
            cycle_ns: 0.3,
            l1: Latency { cycles: 4.0, spread: 0.01 },
            llc: Latency { cycles: 50.0, spread: 0.2 },
            dram: Latency { cycles: 300.0, spread: 0.1 },
            ..LatencyTable::default()
        };
        let skid = |name: &str, samples: Vec<u64>| LoopSkid {
            name: name.into(),
            instructions: samples.len(),
            samples,
            elsewhere: 0,
        };
        let skid = vec![skid("load", vec![1, 18, 1]), skid("store", vec![9, 1])];
        let rate = |cycles| Latency { cycles, spread: 0.0 };
        let lines = LineRates { from_llc: rate(3.5), set_loads: Some(rate(11.0)), ..LineRates::default() };
        Calibration::now(latency, Some(lines), Some("cpu-clock".into()), skid)
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/calibration.toml");
        calibration().write(&path).expect("written");
        let read = Calibration::read(&path).expect("read");
        assert_eq!(read, calibration_at(read.measured_at));
        assert!(read.is_of_this_processor());
        // 18 of 20 one instruction on; 9 of 10 at the store itself.
        assert_eq!((read.usual_skid(), read.skid[0].share(1)), (Some((1, 0)), 0.9));
        assert_eq!(read.largest_spread(), ("last level", 0.2));
    }

    #[test]
    fn of_several_the_first_one_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.toml");
        for measured_at in [1, 2] {
            calibration_at(measured_at).write_first(&path).expect("written");
            assert_eq!(Calibration::read(&path).expect("read").measured_at, 1);
        }
        calibration_at(3).write(&path).expect("written");
        assert_eq!(Calibration::read(&path).expect("read").measured_at, 3);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing partial is left");
    }

    fn calibration_at(measured_at: u64) -> Calibration {
        Calibration { measured_at, ..calibration() }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.toml");
        let refused = |text: &str| {
            fs::write(&path, text).expect("written");
            Calibration::read(&path).expect_err("refused").to_string()
        };
        assert!(refused("format = 1").contains("it is no calibration"));
        let text = toml::to_string(&calibration()).expect("text");
        assert!(refused(&text.replace("format = 1", "format = 9")).contains("format is 9"));
        assert!(refused(&text.replace("cycles = 300.0", "cycles = nan")).contains("memory"));
        let walk = |pages| WalkPoint { pages, ..WalkPoint::default() };
        let latency = LatencyTable { walks: vec![walk(9), walk(9)], ..calibration().latency };
        let text_of_walks = toml::to_string(&Calibration { latency, ..calibration() }).expect("text");
        assert!(refused(&text_of_walks).contains("page walks"));
        assert!(refused(&text.replace("spread = 0.2\n", "spread = nan\n")).contains("last level"));
        assert!(refused(&text.replace("cycles = 11.0", "cycles = -1.0")).contains("one set, by loads"));
        assert!(refused(&text.replace("cycle_ns = 0.3", "cycle_ns = -inf")).contains("core cycle"));
        assert!(refused(&text.replace("cycle_ns = 0.3", "cycle_ns = 0.042")).contains("24 GHz"));
        assert!(Calibration::read(&folder.path().join("none")).is_err());
    }
}
