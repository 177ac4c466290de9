//! valgrind's lackey and cachegrind on the same program: the model's counts are cachegrind's.
//!
//! Skipped with a message where valgrind (or `setarch`, which fixes the addresses) is missing.

use memlens_sim::{Batch, CoreId, MachineDescription, Model, Outcome, SimdLevel};
use memlens_types::{AccessAttr, AccessKind};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// cachegrind's events, in the order of its `events:` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ir: u64,
    i1mr: u64,
    ilmr: u64,
    dr: u64,
    d1mr: u64,
    dlmr: u64,
    dw: u64,
    d1mw: u64,
    dlmw: u64,
}

/// `I1`, `D1` and `LL` as valgrind's options take them.
const GEOMETRIES: [[&str; 3]; 3] = [
    ["32768,8,64", "32768,8,64", "1048576,16,64"],
    // 48 KB of 12 ways: 64 sets in a size that is no power of two.
    ["16384,4,64", "49152,12,64", "786432,12,64"],
    // Tiny, so that misses abound, and with lines of two sizes.
    ["1024,1,32", "2048,2,32", "16384,4,64"],
];

fn is_there(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn cachegrind(program: &[&str], [i1, d1, ll]: [&str; 3]) -> Counts {
    let file = std::env::temp_dir().join(format!("memlens-sim-cachegrind.{}", std::process::id()));
    let mut command = Command::new("setarch");
    command.args(["-R", "valgrind", "--tool=cachegrind", "--cache-sim=yes", "-q"]);
    command.args([format!("--I1={i1}"), format!("--D1={d1}"), format!("--LL={ll}")]);
    command.arg(format!("--cachegrind-out-file={}", file.display())).args(program);
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("setarch runs");
    assert!(status.success(), "{command:?}");
    let text = std::fs::read_to_string(&file).expect("cachegrind wrote its output");
    std::fs::remove_file(&file).expect("removable");
    let line =
        |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix)).expect("in every output");
    assert_eq!(line("events: ").trim(), "Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw");
    let numbers: Vec<u64> =
        line("summary: ").split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let &[ir, i1mr, ilmr, dr, d1mr, dlmr, dw, d1mw, dlmw] = &numbers[..] else { panic!("{numbers:?}") };
    Counts { ir, i1mr, ilmr, dr, d1mr, dlmr, dw, d1mw, dlmw }
}

/// `I  04001234,3`, ` L 1ffe,8`, ` S 1ffe,8`, ` M 1ffe,4`; anything else is no access.
fn parse(line: &str) -> Option<(u64, AccessAttr)> {
    let kind = match line.get(..3)? {
        "I  " => AccessKind::Fetch,
        " L " => AccessKind::Load,
        " S " => AccessKind::Store,
        " M " => AccessKind::Modify,
        _ => return None,
    };
    let (addr, size) = line.get(3..)?.split_once(',')?;
    Some((u64::from_str_radix(addr, 16).ok()?, AccessAttr::new(kind, size.trim().parse().ok()?)))
}

/// Runs lackey once and feeds one model a geometry.
fn lackey(program: &[&str], models: &mut [Model]) -> Vec<Counts> {
    let mut command = Command::new("setarch");
    command.args(["-R", "valgrind", "--tool=lackey", "--trace-mem=yes", "--log-fd=2"]).args(program);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("setarch runs");
    let mut reader = BufReader::new(child.stderr.take().expect("piped"));
    let mut counts = vec![Counts::default(); models.len()];
    let (mut addrs, mut attrs) = (Vec::new(), Vec::new());
    let mut line = Vec::new();
    let mut more = true;
    while more {
        line.clear();
        more = reader.read_until(b'\n', &mut line).expect("readable") > 0;
        if let Some((addr, attr)) = std::str::from_utf8(&line).ok().and_then(parse) {
            addrs.push(addr);
            attrs.push(attr);
        }
        if addrs.len() == 16384 || !more {
            for (model, counts) in models.iter_mut().zip(&mut counts) {
                let mut out = Outcome::default();
                model.access(CoreId(0), Batch { addrs: &addrs, attrs: &attrs }, &mut out);
                count(&attrs, &out, counts);
            }
            addrs.clear();
            attrs.clear();
        }
    }
    assert!(child.wait().expect("waits").success());
    counts
}

fn count(attrs: &[AccessAttr], out: &Outcome, counts: &mut Counts) {
    let writes = |index: &&u32| attrs[**index as usize].kind() == AccessKind::Store;
    let kinds =
        |wanted: &[AccessKind]| attrs.iter().filter(|attr| wanted.contains(&attr.kind())).count() as u64;
    counts.ir += kinds(&[AccessKind::Fetch]);
    // A modify is a read for cachegrind.
    counts.dr += kinds(&[AccessKind::Load, AccessKind::Modify]);
    counts.dw += kinds(&[AccessKind::Store]);
    counts.i1mr += out.l1i_misses.len() as u64;
    counts.ilmr += out.llci_misses.len() as u64;
    let (d1mw, dlmw) =
        (out.l1_misses.iter().filter(writes).count(), out.llc_misses.iter().filter(writes).count());
    counts.d1mw += d1mw as u64;
    counts.dlmw += dlmw as u64;
    counts.d1mr += (out.l1_misses.len() - d1mw) as u64;
    counts.dlmr += (out.llc_misses.len() - dlmw) as u64;
}

fn compare(program: &[&str]) {
    if !is_there("valgrind") || !is_there("setarch") {
        eprintln!("skipped: valgrind or setarch is not installed");
        return;
    }
    let machine = |[i1, d1, ll]: [&str; 3]| {
        let mut machine = MachineDescription::named("cachegrind").expect("shipped");
        for text in [format!("i1={i1}"), format!("d1={d1}"), format!("ll={ll}")] {
            machine.apply_override(&text).expect("valid");
        }
        machine
    };
    let mut models: Vec<Model> =
        GEOMETRIES.iter().map(|&g| Model::new(&machine(g), SimdLevel::detect()).expect("valid")).collect();
    let counts = lackey(program, &mut models);
    for (geometry, got) in GEOMETRIES.into_iter().zip(counts) {
        assert_eq!(got, cachegrind(program, geometry), "{program:?} with {geometry:?}");
    }
}

#[test]
fn counts_of_true() {
    compare(&["/bin/true"]);
}

#[test]
fn counts_of_a_program_that_does_something() {
    compare(&["/bin/ls", "/"]);
}

/// The default geometry is what cachegrind takes on this computer.
#[test]
fn default_geometry() {
    if !is_there("valgrind") {
        eprintln!("skipped: valgrind is not installed");
        return;
    }
    let file = std::env::temp_dir().join(format!("memlens-sim-geometry.{}", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=yes", "-q"]);
    command.arg(format!("--cachegrind-out-file={}", file.display())).arg("/bin/true");
    assert!(command.stderr(Stdio::null()).status().expect("valgrind runs").success());
    let text = std::fs::read_to_string(&file).expect("cachegrind wrote its output");
    std::fs::remove_file(&file).expect("removable");
    let machine = MachineDescription::named("cachegrind").expect("shipped");
    for (name, cache) in [("I1", &machine.l1i), ("D1", &machine.l1d), ("LL", &machine.llc)] {
        let prefix = format!("desc: {name} cache: ");
        let desc = text.lines().find_map(|line| line.strip_prefix(&prefix)).expect("in every output");
        let ways =
            if cache.ways == 1 { "direct-mapped".into() } else { format!("{}-way associative", cache.ways) };
        assert_eq!(desc.trim(), format!("{} B, {} B, {ways}", cache.bytes, cache.line));
    }
}
