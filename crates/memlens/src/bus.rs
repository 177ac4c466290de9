//! `memlens bus`: physical bus traces.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use memlens_bus::format::{FormatError, TraceFolder};
use memlens_bus::system::ThpSetting;

use crate::bus_series::{self, SeriesArgs};
use crate::failure::{Failure, FailureKind, plain};
use crate::machine_args::MachineArgs;
use crate::{bus_analyze, bus_capture, bus_tools};

/// Arguments of `memlens bus`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens bus capture --machine e5504 --out bfs.bus -- ./bfs 20     what a card on the memory bus would see
  memlens bus analyze bfs.bus                                       reads, writes and page walks by object
  memlens bus verify bfs.bus                                        holds the analysis against the truth")]
pub struct BusArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BusCommand,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum BusCommand {
    /// Run a program and write what a card on the memory bus of a modelled machine would see
    Capture(CaptureArgs),
    /// Say which objects a trace's reads, writes and page walks belong to
    Analyze(AnalyzeArgs),
    /// Hold the analysis of a virtual card's trace against what the card knows, record by record
    Verify(TraceArgs),
    /// Say whether a trace is sound and complete, and what is wrong with it
    Check(TraceArgs),
    /// Print a trace's records as CSV, each with process, address and object
    Dump(DumpArgs),
    /// Hold traces of several runs (thread counts, sizes) against the first, by object
    Series(SeriesArgs),
    /// Copy a virtual card's trace and lose or delay some of its records
    Damage(DamageArgs),
}

/// Arguments of `memlens bus capture`.
#[derive(Args, Debug)]
#[command(override_usage = "memlens bus capture [OPTIONS] --out TRACE [--] PROGRAM [ARGUMENTS]...")]
pub struct CaptureArgs {
    /// The folder to write the trace to
    #[arg(long, value_name = "TRACE")]
    pub out: PathBuf,

    /// Replace the trace if it exists
    #[arg(long)]
    pub force: bool,

    /// Say nothing but errors
    #[arg(long, short)]
    pub quiet: bool,

    #[command(flatten)]
    pub options: CaptureOptions,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// What is modelled, and what of the program is recorded.
#[derive(Args, Clone, Debug)]
pub struct CaptureOptions {
    /// Put page tables into an uncached region, so that every TLB miss shows on the bus (PTAT)
    #[arg(long)]
    pub ptat: bool,

    /// When anonymous memory gets transparent huge pages; without a SETTING: always
    #[arg(
        long,
        value_name = "SETTING",
        default_value = "madvise",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    pub thp: ThpChoice,

    /// Give anonymous memory pages of this size, as from hugetlbfs, where a whole one fits
    #[arg(long, value_name = "SIZE")]
    pub hugetlb: Option<HugePageSize>,

    /// Memory nodes (NUMA) that the memory and the cores are dealt to
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub nodes: u8,

    /// Whose frames pages get: those of the model, or those that this machine's kernel gave the running program, with
    /// its page sizes, as far as they can be read (root)
    #[arg(long, value_name = "WHOSE", default_value = "modelled")]
    pub frames: Frames,

    /// Modelled physical memory in GiB
    #[arg(long, value_name = "GIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub memory: u32,

    /// Heap blocks smaller than this are not told apart; 0: all are
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub min_block: u64,

    /// A function that allocates: NAME (its first argument is the size), NAME=N or NAME=free; may be repeated
    #[arg(long = "alloc-fn", value_name = "NAME[=N|=free]", value_parser = crate::run::parse_alloc_function)]
    pub alloc_fn: Vec<String>,

    /// Keep each block of memory as an object of its own, instead of one for all blocks of a place
    #[arg(long)]
    pub no_merge: bool,

    /// Record the bus only from when this function is entered; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub start_on: Vec<String>,

    /// Stop recording the bus when this function is entered; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub stop_on: Vec<String>,

    #[command(flatten)]
    pub machine: MachineArgs,
}

/// Whose frames the pages of a capture get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Frames {
    /// The model's.
    Modelled,
    /// This machine's, where they can be read.
    Real,
}

/// The kernel's setting for transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThpChoice {
    /// Only by MADV_COLLAPSE.
    Never,
    /// Where the program asks by MADV_HUGEPAGE.
    Madvise,
    /// Wherever the program does not forbid it.
    Always,
}

impl From<ThpChoice> for ThpSetting {
    fn from(choice: ThpChoice) -> Self {
        match choice {
            ThpChoice::Never => Self::Never,
            ThpChoice::Madvise => Self::Madvise,
            ThpChoice::Always => Self::Always,
        }
    }
}

/// Sizes of pages from hugetlbfs; the number is the level of their entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HugePageSize {
    /// 2 MiB.
    #[value(name = "2m")]
    TwoMib = 2,
    /// 1 GiB.
    #[value(name = "1g")]
    OneGib = 3,
}

/// Arguments of `memlens bus analyze`.
#[derive(Args, Debug)]
pub struct AnalyzeArgs {
    /// The folder of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// How many objects are shown; 0: all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,

    /// A table, everything as JSON, or the addresses over time as CSV
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: AnalysisFormat,

    /// Also write a profile, for `memlens report`
    #[arg(long, value_name = "PROFILE")]
    pub out: Option<PathBuf>,

    /// Replace the profile if it exists
    #[arg(long)]
    pub force: bool,

    /// Threads to analyse on; as many as there are processors if not given. The result is the same
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// Keep the state of the analysis in FILE; if it is there, go on from it. Removed at the end
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// Write the checkpoint after each N records
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: u64,
}

/// Forms of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnalysisFormat {
    /// Tables for people.
    Table,
    /// All numbers.
    Json,
    /// Objects, one a line.
    Csv,
    /// Time, virtual address, object: a sample of the data records.
    Points,
    /// Reads and writes over time.
    Bandwidth,
    /// Reads of page-table entries by page, the lines of entries that are read most first.
    Pages,
}

/// Arguments of commands that only read a trace.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// The folder of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
}

/// Arguments of `memlens bus dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// The folder of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Only page walks' reads of leaf entries: the TLB misses that reach the bus
    #[arg(long)]
    pub tlb_misses: bool,

    /// No more than so many records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// Arguments of `memlens bus damage`.
#[derive(Args, Debug)]
pub struct DamageArgs {
    /// The folder of the trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// The folder to write the damaged copy to
    #[arg(long, value_name = "TRACE")]
    pub out: PathBuf,

    /// Replace the copy if it exists
    #[arg(long)]
    pub force: bool,

    /// Probability that a packet is lost
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub lose: f64,

    /// Records of a packet
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub packet: u32,

    /// Probability that a tag never comes
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub drop_tags: f64,

    /// Probability that a tag comes late
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability)]
    pub delay_tags: f64,

    /// By up to so many records
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub delay_by: u32,

    /// The same number gives the same faults
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("it is not a number from 0 to 1".into()),
    }
}

/// Does what the command says; the number is the exit code.
pub fn bus(args: BusArgs) -> Result<u8, Failure> {
    match args.command {
        BusCommand::Capture(args) => bus_capture::capture(args),
        BusCommand::Analyze(args) => bus_analyze::analyze(&args),
        BusCommand::Verify(args) => bus_tools::verify(&args.trace),
        BusCommand::Check(args) => bus_tools::check(&args.trace),
        BusCommand::Dump(args) => bus_tools::dump(&args),
        BusCommand::Series(args) => bus_series::series(&args),
        BusCommand::Damage(args) => bus_tools::damage(&args),
    }
}

/// Opens a trace named by the user.
pub fn open(path: &Path) -> Result<TraceFolder, Failure> {
    TraceFolder::open(path)
        .map_err(|error| Failure::of_io("open the bus trace", &path.display().to_string(), &error))
}

/// Makes a folder named by the user.
pub fn create(path: &Path, replaces: bool) -> Result<TraceFolder, Failure> {
    TraceFolder::create(path, replaces).map_err(|error| {
        let message = format!("cannot create {}: {}", path.display(), plain(&error));
        let hint = if error.kind() == std::io::ErrorKind::AlreadyExists && !replaces {
            "; choose another name, or replace it with --force"
        } else {
            ""
        };
        Failure::new(FailureKind::CannotCreate, message + hint)
    })
}

/// The failure of reading or writing a trace.
pub fn failure(place: &Path, error: &FormatError) -> Failure {
    let kind = match error {
        FormatError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            FailureKind::Permission
        }
        FormatError::Io { .. } => FailureKind::Io,
        FormatError::Unsupported(_) => FailureKind::Unavailable,
        _ => FailureKind::BadData,
    };
    Failure::new(kind, format!("{}: failed to {error}", place.display()))
}
