//! Whether there is a processor that nobody uses.

use std::fs;
use std::time::Instant;

use crate::process::processors;

/// Ticks of all processors since the machine started (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
    cpus: u64,
}

/// Looks at `/proc/stat` from time to time.
#[derive(Clone, Copy, Debug)]
pub struct ContentionMeter {
    last: Option<Ticks>,
    looked: Instant,
}

impl ContentionMeter {
    /// Begins now.
    pub fn start() -> Self {
        Self { last: read(), looked: Instant::now() }
    }

    /// Since the last call: 0 if a processor was idle or this process's all the time, 1 if none ever was, and between them in
    /// proportion. 1 also where this process may use one processor only, or the kernel does not say. `own_cpu_seconds`: what
    /// this process used of the processors since then.
    pub fn look(&mut self, own_cpu_seconds: f64) -> f64 {
        let now = read();
        let elapsed = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        let own_processors = own_cpu_seconds / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let last = std::mem::replace(&mut self.last, now);
        match (last, now) {
            (Some(last), Some(now)) if processors() > 1 => contention(last, now, own_processors),
            _ => 1.0,
        }
    }
}

fn contention(last: Ticks, now: Ticks, own_processors: f64) -> f64 {
    let all = now.all.saturating_sub(last.all);
    let idle = now.idle.saturating_sub(last.idle);
    if all == 0 {
        return 1.0;
    }
    let idle_processors = idle as f64 / all as f64 * now.cpus as f64;
    1.0 - (idle_processors + own_processors).clamp(0.0, 1.0)
}

fn read() -> Option<Ticks> {
    ticks_of(&fs::read_to_string("/proc/stat").ok()?)
}

fn ticks_of(text: &str) -> Option<Ticks> {
    let mut lines = text.lines();
    // user nice system idle iowait irq softirq steal; guests' time is in user's already.
    let total = lines.next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = total.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    let idle = fields.get(3)? + fields.get(4).unwrap_or(&0);
    let cpus = lines.take_while(|line| line.starts_with("cpu")).count() as u64;
    Some(Ticks { all: fields.iter().sum(), idle, cpus })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_added_up() {
        let text =
            "cpu  10 1 5 80 4 0 0 0 3 0\ncpu0 5 1 2 40 2 0 0 0 0 0\ncpu1 5 0 3 40 2 0 0 0 3 0\nintr 7\n";
        assert_eq!(ticks_of(text), Some(Ticks { all: 100, idle: 84, cpus: 2 }));
        assert_eq!(ticks_of("cpu  10 1\n"), None);
        assert_eq!(ticks_of(""), None);
    }

    #[test]
    fn an_idle_processor_is_room_for_us() {
        let start = Ticks { all: 1000, idle: 500, cpus: 4 };
        // Of 400 ticks 100 idle: one of four processors.
        assert_eq!(contention(start, Ticks { all: 1400, idle: 600, cpus: 4 }, 0.0), 0.0);
        assert_eq!(contention(start, Ticks { all: 1400, idle: 500, cpus: 4 }, 0.0), 1.0);
        assert_eq!(contention(start, Ticks { all: 1400, idle: 550, cpus: 4 }, 0.0), 0.5);
        assert_eq!(contention(start, start, 0.0), 1.0);
        // It was our work that kept the last quarter of it from being idle.
        assert_eq!(contention(start, Ticks { all: 1400, idle: 575, cpus: 4 }, 0.25), 0.0);
    }
}
