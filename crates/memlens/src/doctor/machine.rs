//! What the machine, the kernel and the container allow.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, io, thread};

use memlens_backing::{MemoryNodes, NodeError, probe_page_nodes};
use memlens_calibrate::Calibration;
use memlens_sim::{CacheDescription, MachineDescription, TlbDescription};

use super::finding::Finding;
use crate::brief_calibration::{self, Brief};
use crate::failure::plain;
use crate::processor::IS_X86_64;
use crate::system::{self, Counter};

/// The highest rate that a budget leads to, in samples a second.
const USUAL_SAMPLE_RATE: u64 = 4000;
/// The kernel's own default of `perf_event_mlock_kb`: 512 KiB and a page.
const USUAL_RING_KILOBYTES: u64 = 516;

/// Everything that does not depend on a program.
pub fn findings() -> Vec<Finding> {
    let mut findings = vec![processor(), kernel()];
    findings.extend(container());
    findings.extend([
        seccomp(),
        counters(),
        sampling_limits(),
        tracing_of_processes(),
        shared_memory(),
        limits(),
        host_model(),
        calibration(),
        cache_folder(),
        huge_pages(),
        memory_nodes(&MemoryNodes::of_this_machine(), probe_page_nodes()),
    ]);
    findings
}

fn processor() -> Finding {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let plural = if cores == 1 { "core" } else { "cores" };
    let architecture = env::consts::ARCH;
    if !IS_X86_64 {
        let text =
            format!("{architecture}, {cores} {plural}: burst and sample mode; exact mode is for x86-64");
        return Finding::limited("processor", text, "").without_advice();
    }
    let features = vector_instructions();
    let vectors = match features.is_empty() {
        true => "no AVX2: the memory model is slower".to_owned(),
        false => features.join(" and "),
    };
    let text = format!("x86-64, {cores} {plural}, {vectors}");
    match features.is_empty() {
        true => Finding::limited("processor", text, "").without_advice(),
        false if cores == 1 => {
            Finding::limited("processor", text + "; the model shares it with the program", "")
                .without_advice()
        }
        false => Finding::good("processor", text),
    }
}

/// Those that the model is faster with.
fn vector_instructions() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let known = [
        (is_x86_feature_detected!("avx2"), "AVX2"),
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl"), "AVX-512"),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let known: [(bool, &str); 0] = [];
    known.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
}

fn kernel() -> Finding {
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => Finding::good("kernel", format!("Linux {}", release.trim())),
        Err(error) => Finding::bad(
            "kernel",
            format!("/proc cannot be read: {}", plain(&error)),
            "mount it: mount -t proc proc /proc",
        ),
    }
}

fn container() -> Option<Finding> {
    let by_file = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")];
    let known =
        by_file.into_iter().find(|(file, _)| Path::new(file).exists()).map(|(_, name)| name.to_owned());
    let name = known.or_else(|| env::var("container").ok().filter(|name| !name.is_empty()))?;
    Some(Finding::good("container", format!("inside one ({name}); limits below may be its own")))
}

fn seccomp() -> Finding {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    match field("Seccomp:").as_deref() {
        Some("0") => Finding::good("seccomp", "no filter on system calls"),
        Some("2") => {
            Finding::good("seccomp", "a filter on system calls; the lines below say what it forbids")
        }
        Some("1") => Finding::bad("seccomp", "strict: no program can be started", "leave the sandbox"),
        _ => Finding::limited("seccomp", "the kernel does not say", "").without_advice(),
    }
}

fn counters() -> Finding {
    let topic = "hardware counters";
    let hardware =
        system::try_counter(Counter::Cycles).and_then(|()| system::try_counter(Counter::Instructions));
    let Err(error) = hardware else {
        return Finding::good(topic, "cycles and instructions can be counted");
    };
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let level = paranoid.as_deref().map_or("unknown", str::trim);
    let software = match system::try_counter(Counter::TaskClock) {
        Ok(()) => "the kernel's own counters work",
        Err(_) => "nor do the kernel's own",
    };
    let why = plain(&error);
    let unneeded =
        if IS_X86_64 { "exact mode and samples of time need none" } else { "samples of time need none" };
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Finding::limited(
            topic,
            format!("forbidden (perf_event_paranoid is {level}); {software}; {unneeded}"),
            "sudo sysctl kernel.perf_event_paranoid=1; in a container, also --cap-add PERFMON",
        ),
        Some(libc::ENOSYS) => {
            Finding::limited(topic, format!("the kernel has none; {unneeded}"), "").without_advice()
        }
        _ => Finding::limited(
            topic,
            format!("none ({why}): a virtual machine without them? {software}; {unneeded}"),
            "",
        )
        .without_advice(),
    }
}

/// What the kernel lets every user do with samples: how many a second, and how large a ring.
fn sampling_limits() -> Finding {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
    };
    let topic = "samples";
    let (Some(rate), Some(kilobytes)) = (number("perf_event_max_sample_rate"), number("perf_event_mlock_kb"))
    else {
        return Finding::limited(topic, "the kernel has no performance events", "").without_advice();
    };
    let text = format!("at most {rate} a second, in rings of {kilobytes} KiB a processor");
    if rate < USUAL_SAMPLE_RATE {
        return Finding::limited(
            topic,
            format!("{text}: the kernel lowers the rate when its interrupts take long"),
            "sudo sysctl kernel.perf_event_max_sample_rate=100000",
        );
    }
    if kilobytes < USUAL_RING_KILOBYTES {
        return Finding::limited(
            topic,
            format!("{text}: samples are lost when the machine is busy"),
            format!("sudo sysctl kernel.perf_event_mlock_kb={USUAL_RING_KILOBYTES}"),
        );
    }
    Finding::good(topic, text)
}

fn tracing_of_processes() -> Finding {
    let topic = "ptrace";
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let unneeded = if IS_X86_64 { "exact mode needs none" } else { "programs that memlens starts need none" };
    match scope.as_deref().map(str::trim) {
        None => {
            Finding::good(topic, format!("no Yama restriction, --pid attaches to own processes; {unneeded}"))
        }
        Some("0") => {
            Finding::good(topic, format!("own processes can be traced, --pid attaches to them; {unneeded}"))
        }
        Some("1") => Finding::good(
            topic,
            format!(
                "own children can be traced; --pid as root, or with kernel.yama.ptrace_scope=0; {unneeded}"
            ),
        ),
        Some(scope) => Finding::limited(
            topic,
            format!("restricted (ptrace_scope is {scope}); {unneeded}"),
            "sudo sysctl kernel.yama.ptrace_scope=1",
        ),
    }
}

fn shared_memory() -> Finding {
    match system::memfd_create() {
        Ok(()) => Finding::good("shared memory", "memfd_create works"),
        Err(error) => Finding::bad(
            "shared memory",
            format!("memfd_create fails: {}", plain(&error)),
            "allow the system call in the sandbox; it needs Linux 3.17",
        ),
    }
}

fn limits() -> Finding {
    match system::low_limits() {
        low if low.is_empty() => Finding::good("limits", "files, open files and addresses are enough"),
        low => Finding::bad("limits", low.join("; "), "or run from a shell without these limits (ulimit -a)"),
    }
}

/// What `--machine host` is made of, and what of it is not known.
fn calibration() -> Finding {
    let topic = "calibration";
    let advice = "measure this machine, when it is quiet: memlens calibrate";
    let Some(path) = memlens_calibrate::default_path() else {
        return Finding::limited(
            topic,
            "there is no home for one; latencies are assumed",
            "name one: --calibration FILE",
        );
    };
    let cycles = |found: &Calibration| {
        let latency = &found.latency;
        format!(
            "first level {:.0}, last level {:.0}, memory {:.0} cycles",
            latency.l1.cycles, latency.llc.cycles, latency.dram.cycles
        )
    };
    if !path.exists() {
        let host = MachineDescription::named("host").ok();
        let latencies = match host.and_then(|host| brief_calibration::known(&host)) {
            Some(Brief { calibration, assumed: None }) => {
                format!("latencies were measured briefly ({})", cycles(&calibration))
            }
            Some(Brief { calibration, assumed: Some(what) }) => format!(
                "latencies were measured briefly ({}), but those of {what} are assumed: the machine was busy, and a run after ten minutes measures \
                 again",
                cycles(&calibration)
            ),
            None => brief_calibration::doubt().map_or_else(
                || "the first run measures latencies briefly, or they are assumed".to_owned(),
                |why| {
                    format!(
                        "latencies are assumed: when they were measured briefly the machine was busy ({why}), and a run after ten minutes does \
                         it again"
                    )
                },
            ),
        };
        let text = format!("there is none; {latencies}; that samples land one on is assumed");
        return Finding::limited(topic, text, advice);
    }
    let place = path.display();
    match Calibration::read(&path) {
        Ok(found) if found.is_of_this_processor() => {
            let mut text = format!("{place}: {}", cycles(&found));
            if let Some((loads, _)) = found.usual_skid() {
                text += &format!("; samples land {loads} behind");
            }
            Finding::good(topic, text)
        }
        Ok(found) => {
            Finding::limited(topic, format!("{place} is of another processor: {}", found.processor), advice)
        }
        Err(error) => Finding::limited(topic, format!("failed to {error}"), advice),
    }
}

fn host_model() -> Finding {
    let topic = "--machine host";
    let host = match MachineDescription::named("host") {
        Ok(host) => host,
        Err(error) => return Finding::bad(topic, error.to_string(), "choose another: --machine NAME"),
    };
    let cache = |name: &str, cache: &CacheDescription| {
        let size = match cache.bytes {
            bytes if bytes % (1 << 20) == 0 => format!("{} MiB", bytes >> 20),
            bytes => format!("{} KiB", bytes >> 10),
        };
        format!("{name} {size} in {} ways", cache.ways)
    };
    let mut shared = host.clone();
    shared.assume_llc_share();
    let is_shared = shared.llc.bytes < host.llc.bytes;
    let told = CacheDescription { bytes: host.told_llc_bytes(), ..host.llc.clone() };
    let served = is_shared.then(|| cache("of which until calibrated", &shared.llc) + " are modelled");
    let tlb = |name: &str, tlb: &Option<TlbDescription>| {
        let size = tlb.as_ref().and_then(|tlb| tlb.size_4k);
        size.map(|size| format!("{name} {} entries in {} ways", size.entries, size.ways))
    };
    let parts = [
        Some(cache("L1d", &host.l1d)),
        host.l2.as_ref().map(|l2| cache("L2", l2)),
        Some(cache("LLC", &told)),
        served,
        tlb("dTLB", &host.dtlb),
        tlb("STLB", &host.stlb),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let sources: BTreeSet<&str> = [&host.dtlb, &host.stlb]
        .into_iter()
        .flatten()
        .map(|tlb| tlb.source.as_str())
        .chain([host.l1d.source.as_str()])
        .collect();
    let sources: Vec<&str> = sources.into_iter().filter(|source| !source.is_empty()).collect();
    let text = format!("{}; from {}", parts.join(", "), sources.join(", "));
    Finding::limited(topic, text, format!("{}; --cache sets what is wrong", host.notes.join("; ")))
}

/// The same folders as the engine's: the user's cache, then the temporary one.
fn cache_folder() -> Finding {
    let topic = "engine's folder";
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let mut reasons = Vec::new();
    for folder in cache.into_iter().chain([env::temp_dir()]) {
        match is_usable(&folder) {
            Ok(()) => {
                return Finding::good(
                    topic,
                    format!("{} can be written and executed from", folder.display()),
                );
            }
            Err(why) => reasons.push(format!("{}: {why}", folder.display())),
        }
    }
    Finding::bad(
        topic,
        reasons.join("; "),
        "export XDG_CACHE_HOME=FOLDER with 4 MB of room that allows execution",
    )
}

/// Whether files can be written and executed there. A folder that does not exist is judged by its
/// nearest parent that does.
fn is_usable(folder: &Path) -> Result<(), String> {
    let existing = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    if system::forbids_execution(existing).map_err(|error| plain(&error))? {
        return Err("mounted noexec".to_owned());
    }
    let probe = existing.join(format!(".memlens-doctor-{}", std::process::id()));
    let written = fs::File::create_new(&probe).and_then(|mut file| io::Write::write_all(&mut file, b"x"));
    // There is nothing to remove where it could not be created.
    let _ = fs::remove_file(&probe);
    written.map_err(|error| plain(&error))
}

/// How many there are, and whether the kernel says where pages lie.
fn memory_nodes(nodes: &MemoryNodes, probed: Result<(), NodeError>) -> Finding {
    let topic = "memory nodes";
    if !nodes.are_several() {
        return Finding::good(topic, "one: no memory is farther than another");
    }
    let numbers: Vec<String> = nodes.with_memory().iter().map(u32::to_string).collect();
    let several = format!("{} (nodes {})", numbers.len(), numbers.join(", "));
    match probed {
        Ok(()) => Finding::good(
            topic,
            format!("{several}; the kernel says in which one each page of a program lies"),
        ),
        Err(error) => Finding::limited(
            topic,
            format!("{several}; burst mode does not tell them apart: memlens failed to {error}"),
            "allow the container that call: docker run --cap-add SYS_NICE",
        ),
    }
}

fn huge_pages() -> Finding {
    let topic = "huge pages";
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    // The setting in force stands in brackets: "always [madvise] never".
    let setting = text.split(['[', ']']).nth(1).unwrap_or("not available");
    let what = match setting {
        "always" => "used wherever possible",
        "madvise" => "used where the program asks (madvise)",
        "never" => "not used",
        _ => "not available",
    };
    Finding::good(topic, format!("transparent ones are {what}"))
}
