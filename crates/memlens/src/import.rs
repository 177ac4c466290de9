//! `memlens import`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use memlens_import::{LackeyError, LackeyReader};
use memlens_pipeline::AddressStream;
use memlens_profile::{Existing, Profile};
use memlens_sample::{PerfDataError, PerfScriptError};

use crate::failure::{Failure, FailureKind};
use crate::machine_args::MachineArgs;
use crate::output::Output;
use crate::shell;
use crate::streams::{self, Stream, say};

/// Room for the trace's text between file and reader.
const BUFFER_BYTES: usize = 1 << 20;
/// Accesses between two looks at the clock.
const ACCESSES_PER_LOOK: u64 = 1 << 20;

/// Arguments of `memlens import`.
#[derive(Args, Debug)]
pub struct ImportArgs {
    /// Which tool's trace.
    #[command(subcommand)]
    pub trace: ImportTrace,
}

/// The traces.
#[derive(Subcommand, Debug)]
pub enum ImportTrace {
    /// The trace of `valgrind --tool=lackey --trace-mem=yes --log-file=FILE PROGRAM`
    Lackey(LackeyArgs),
    /// The samples of `perf record` or `perf mem record`
    Perf(PerfArgs),
    /// The text of `perf script`, for samples that come from elsewhere or were filtered
    PerfScript(PerfScriptArgs),
}

/// What becomes of the profile, for all traces.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// Where the profile goes
    #[arg(long, value_name = "PROFILE")]
    pub out: PathBuf,

    /// Replace the profile if it exists
    #[arg(long)]
    pub force: bool,

    /// Say nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where the files of a recorded program are.
#[derive(Args, Debug)]
pub struct SysrootArgs {
    /// A folder with the files of the machine that was recorded, as they lie there (FOLDER/usr/lib/…): looked in first
    #[arg(long, value_name = "FOLDER")]
    pub sysroot: Option<PathBuf>,
}

impl SysrootArgs {
    fn folder(&self) -> Result<Option<PathBuf>, Failure> {
        if let Some(folder) = &self.sysroot
            && !folder.is_dir()
        {
            let message = format!("--sysroot {}: there is no such folder", folder.display());
            return Err(Failure::new(FailureKind::NoInput, message));
        }
        Ok(self.sysroot.clone())
    }
}

impl ProfileArgs {
    fn create(&self) -> Result<Output, Failure> {
        Output::create(Some(&self.out), OsStr::new(""), Existing::replace_if(self.force))
    }
}

/// Arguments of `memlens import lackey`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens import lackey ls.trace --out ls.memlens                     on this machine's caches
  memlens import lackey ls.trace --machine cachegrind --out ls.cg     by cachegrind's rules")]
pub struct LackeyArgs {
    /// The trace, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,

    #[command(flatten)]
    pub profile: ProfileArgs,

    #[command(flatten)]
    pub machine: MachineArgs,
}

/// Arguments of `memlens import perf`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens import perf perf.data --out app.memlens                       with the files of this machine
  memlens import perf perf.data --sysroot arm-root --out app.memlens    recorded on another one (x86-64 or AArch64)")]
#[command(after_help = "\
Record with registers, so that data addresses can be computed:\n  \
perf record -e cpu-clock:u --user-regs=ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15 -- PROGRAM\n\
(on AArch64 x0 to x29, lr, sp and pc; --call-graph dwarf asks for all on either)\n\
or, where the processor tells addresses: perf mem record -- PROGRAM\n\
Exit codes: 65 if the file is no perf.data or is damaged, 66 if it is not there, 74 if it cannot be read.")]
pub struct PerfArgs {
    /// The file that perf wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    pub sysroot: SysrootArgs,

    #[command(flatten)]
    pub profile: ProfileArgs,
}

/// Arguments of `memlens import perf-script`.
#[derive(Args, Debug)]
#[command(after_help = "\
With mappings and registers it tells as much as perf.data does:\n  \
perf script --show-mmap-events -F comm,pid,tid,time,period,event,ip,sym,symoff,dso,uregs >samples.txt\n\
With data addresses (perf mem record, perf record -d), addr in place of uregs.")]
pub struct PerfScriptArgs {
    /// The text, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    #[command(flatten)]
    pub sysroot: SysrootArgs,

    #[command(flatten)]
    pub profile: ProfileArgs,
}

fn import_perf(args: &PerfArgs) -> Result<u8, Failure> {
    let place = args.file.display().to_string();
    let file = File::open(&args.file).map_err(|error| Failure::of_io("open the file", &place, &error))?;
    let profile = memlens_sample::import_perf_data(file, args.sysroot.folder()?).map_err(|error| {
        let kind = match error {
            PerfDataError::Io(_) => FailureKind::Io,
            _ => FailureKind::BadData,
        };
        Failure::new(kind, format!("{place}: failed to {error}"))
    })?;
    write_samples(profile, &format!("perf data {place}"), &place, &args.profile)
}

fn import_perf_script(args: &PerfScriptArgs) -> Result<u8, Failure> {
    let (place, text) = open_text(&args.file, "open the file")?;
    let profile = memlens_sample::import_perf_script(text, args.sysroot.folder()?).map_err(|error| {
        let kind = match error {
            PerfScriptError::Read(_) => FailureKind::Io,
            _ => FailureKind::BadData,
        };
        Failure::new(kind, format!("{place}: failed to {error}"))
    })?;
    write_samples(profile, &format!("perf script {place}"), &place, &args.profile)
}

fn write_samples(mut profile: Profile, command: &str, place: &str, to: &ProfileArgs) -> Result<u8, Failure> {
    profile.run.command = vec![command.to_owned()];
    profile.run.memlens_version = env!("CARGO_PKG_VERSION").to_owned();
    to.create()?.writer().flush(&profile, true)?;
    if !to.quiet {
        let samples = profile.totals().sampled.samples;
        let (out, word) = (to.out.display(), shell::path(&to.out));
        say(&format!("{samples} samples of {place} are in {out}; see: memlens report {word}"));
    }
    Ok(0)
}

/// What a text is called in messages, and the text; `-` is standard input.
fn open_text(path: &Path, what: &str) -> Result<(String, Box<dyn BufRead>), Failure> {
    if path.as_os_str() == "-" {
        let input = BufReader::with_capacity(BUFFER_BYTES, io::stdin());
        return Ok(("standard input".to_owned(), Box::new(input)));
    }
    let place = path.display().to_string();
    let file = File::open(path).map_err(|error| Failure::of_io(what, &place, &error))?;
    Ok((place, Box::new(BufReader::with_capacity(BUFFER_BYTES, file))))
}

/// Makes a profile from a trace.
pub fn import(args: ImportArgs) -> Result<u8, Failure> {
    let args = match args.trace {
        ImportTrace::Lackey(args) => args,
        ImportTrace::Perf(args) => return import_perf(&args),
        ImportTrace::PerfScript(args) => return import_perf_script(&args),
    };
    let machine = args.machine.description()?;
    let mut stream = AddressStream::new(machine).map_err(|error| {
        Failure::new(FailureKind::Usage, format!("cannot build the memory model: {error}"))
    })?;
    let (place, source) = open_text(&args.trace, "open the trace")?;
    let mut output = args.profile.create()?;

    let mut reader = LackeyReader::new(source);
    let mut progress = Progress::new(!args.profile.quiet && Stream::Stderr.is_terminal());
    let read = feed(&mut reader, &mut stream, &mut progress, &place);
    progress.clear();
    let ending = match read {
        Ok(ending) => ending,
        Err(failure) => {
            output.discard();
            return Err(failure);
        }
    };
    let mut profile = stream.finish();
    describe(&mut profile, &place, &ending);
    output.writer().flush(&profile, !ending.is_cut)?;
    if !args.profile.quiet {
        let (out, word) = (args.profile.out.display(), shell::path(&args.profile.out));
        if ending.is_cut {
            say(&format!("warning: {place} was cut in line {}; the profile ends there", ending.lines));
        }
        say(&format!("{} accesses of {place} are in {out}; see: memlens report {word}", ending.accesses));
    }
    Ok(0)
}

/// What was read.
struct Ending {
    accesses: u64,
    lines: u64,
    skipped_lines: u64,
    /// The last line ends too early: whoever wrote the trace was stopped.
    is_cut: bool,
}

fn feed<R: BufRead>(
    reader: &mut LackeyReader<R>,
    stream: &mut AddressStream,
    progress: &mut Progress,
    place: &str,
) -> Result<Ending, Failure> {
    let mut accesses = 0;
    let mut is_cut = false;
    for item in reader.by_ref() {
        match item {
            Ok(access) => stream.access(access.kind, access.addr, access.size),
            Err(LackeyError::Truncated { .. }) => {
                is_cut = true;
                continue;
            }
            Err(error) => {
                let kind = match error {
                    LackeyError::Read { .. } => FailureKind::Io,
                    _ => FailureKind::BadData,
                };
                return Err(Failure::new(kind, format!("{place}: cannot {error}")));
            }
        }
        accesses += 1;
        if accesses % ACCESSES_PER_LOOK == 0 {
            progress.show(accesses);
        }
    }
    let (lines, skipped_lines) = (reader.lines(), reader.skipped_lines());
    if accesses == 0 {
        let message = format!(
            "{place}: no line of {lines} is an access; is it the output of \
             valgrind --tool=lackey --trace-mem=yes?"
        );
        return Err(Failure::new(FailureKind::BadData, message));
    }
    Ok(Ending { accesses, lines, skipped_lines, is_cut })
}

fn describe(profile: &mut Profile, place: &str, ending: &Ending) {
    profile.run.command = vec![format!("lackey trace {place}")];
    profile.run.mode = "import".to_owned();
    profile.run.memlens_version = env!("CARGO_PKG_VERSION").to_owned();
    profile.run.primary_cost = "wait_cycles".to_owned();
    if ending.skipped_lines > 0 {
        let skipped = format!(
            "{} of {} lines of the trace are no accesses (messages of valgrind, output of the program).",
            ending.skipped_lines, ending.lines
        );
        profile.run.notes.push(skipped);
    }
    if ending.is_cut {
        profile.attribution.truncated = true;
        profile.run.notes.push("The trace ends in the middle of a line.".to_owned());
    }
}

/// One line on a terminal that says how far the import is.
struct Progress {
    is_shown: bool,
    started: Instant,
    last: Instant,
    has_line: bool,
}

impl Progress {
    fn new(is_shown: bool) -> Self {
        let now = Instant::now();
        Self { is_shown, started: now, last: now, has_line: false }
    }

    fn show(&mut self, accesses: u64) {
        if !self.is_shown || self.last.elapsed() < Duration::from_secs(1) {
            return;
        }
        self.last = Instant::now();
        self.has_line = true;
        let millions = accesses as f64 / 1e6;
        let rate = millions / self.started.elapsed().as_secs_f64();
        streams::write_to_stderr(&format!("\rmemlens: {millions:.0} million accesses, {rate:.0} million/s "));
    }

    fn clear(&mut self) {
        if self.has_line {
            streams::write_to_stderr("\r\x1b[K");
        }
    }
}
