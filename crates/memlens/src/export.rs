//! `memlens export`.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use memlens_profile::Profile;
use memlens_query::Database;
use memlens_report::{
    Column, Dhat, Tree, callgrind, flame_graph, folded, pprof, stack_columns, stacks_total,
};

use crate::failure::{Failure, FailureKind};
use crate::report::open_wanted;
use crate::view_args::list;
use crate::words::Words;
use crate::{result_file, shell, streams};

/// Arguments of `memlens export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Into which format.
    #[command(subcommand)]
    pub format: ExportFormat,
}

/// The formats.
#[derive(Subcommand, Debug)]
pub enum ExportFormat {
    /// For callgrind_annotate and KCachegrind: data objects as entries, functions as their callers
    Callgrind(CallgrindArgs),
    /// For valgrind's DHAT viewer and Firefox Profiler: where the heap is allocated, how much, and how much of it is read and written
    Dhat(DhatArgs),
    /// A flame graph as one SVG file: where data was made, what it is, who touches it; or who touches what, through which calls
    Flamegraph(StacksArgs),
    /// Collapsed stacks, a line each, for flamegraph.pl, inferno, speedscope and others
    Folded(StacksArgs),
    /// For pprof and what reads its files (Pyroscope, Parca, speedscope …): all counts, with objects as functions
    Pprof(PprofArgs),
    /// A file of SQLite's with all tables that `memlens query` knows
    Sqlite(SqliteArgs),
}

/// Where an export goes.
#[derive(Args, Debug)]
pub struct Target {
    /// The profile
    pub profile: PathBuf,

    /// Export one process of a profile recorded with --follow children or merged: its number or process id
    #[arg(long, value_name = "N|PID")]
    pub process: Option<u32>,

    /// File to write; standard output if not given, or ‘-’
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "out")]
    pub force: bool,
}

impl Target {
    /// The profile, or the process's.
    fn open(&self) -> Result<Profile, Failure> {
        open_wanted(&self.profile, self.process)
    }
}

/// Arguments of `memlens export callgrind`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens export callgrind ls.memlens --out callgrind.out.ls    then: kcachegrind callgrind.out.ls")]
pub struct CallgrindArgs {
    #[command(flatten)]
    target: Target,
}

/// Arguments of `memlens export dhat`.
#[derive(Args, Debug)]
#[command(
    before_help = "\
Examples:
  memlens export dhat ls.memlens --out dhat.out.ls                         then: load it in valgrind's dh_view.html
  memlens export dhat ls.memlens --value llc_misses --out dhat.out.ls      last-level misses in place of bytes",
    after_long_help = list("--value", stack_columns())
)]
pub struct DhatArgs {
    #[command(flatten)]
    target: Target,

    /// What stands in place of bytes: a column, and accesses or samples in place of blocks; if not given, bytes and blocks that were allocated
    #[arg(long, value_name = "COLUMN", value_parser = amount_words(), hide_possible_values = true)]
    value: Option<Column>,
}

/// Arguments of `memlens export flamegraph` and `folded`.
#[derive(Args, Debug)]
#[command(
    before_help = "\
Examples:
  memlens export flamegraph ls.memlens --out ls.svg                      where what is waited for was allocated
  memlens export flamegraph ls.memlens --tree code --out ls.svg          through which calls it is waited for
  memlens export folded ls.memlens --value llc_misses --out ls.folded    last-level misses, for another tool",
    after_long_help = list("--value", stack_columns())
)]
pub struct StacksArgs {
    #[command(flatten)]
    target: Target,

    /// What stacks grow from: `data` (kind, calls that led to the allocation, object, field, function that touches it) or `code` (calls that lead to
    /// the access, function, object)
    #[arg(long, value_name = "TREE", value_parser = tree_words(), default_value = Tree::Data.as_str())]
    tree: Tree,

    /// What widths are: a column; if not given, what tables are ranked by (stalls, the wait, time …)
    #[arg(long, value_name = "COLUMN", value_parser = amount_words(), hide_possible_values = true)]
    value: Option<Column>,
}

/// Arguments of `memlens export pprof`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens export pprof ls.memlens --out ls.pb.gz    then: go tool pprof -http=: ls.pb.gz")]
pub struct PprofArgs {
    #[command(flatten)]
    target: Target,

    /// What stacks grow from: `data` or `code`, as of `memlens export flamegraph`
    #[arg(long, value_name = "TREE", value_parser = tree_words(), default_value = Tree::Data.as_str())]
    tree: Tree,
}

/// Arguments of `memlens export sqlite`.
#[derive(Args, Debug)]
#[command(before_help = "\
Examples:
  memlens export sqlite ls.memlens --out ls.db    then: sqlite3 ls.db 'SELECT name, llc_misses FROM objects'")]
pub struct SqliteArgs {
    #[command(flatten)]
    target: Target,
}

fn tree_words() -> Words<Tree> {
    Words::new(Tree::ALL.iter().map(|tree| (tree.as_str(), Some(tree.meaning()))))
}

fn amount_words() -> Words<Column> {
    Words::new(stack_columns().map(|column| (column.as_str(), Some(column.meaning()))))
}

/// Writes the export.
pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    match &args.format {
        ExportFormat::Callgrind(args) => {
            let profile = args.target.open()?;
            if profile.run.sampling.is_some() {
                let message = "callgrind's format has counts of accesses and misses, and samples have none: record the program in burst \
                               mode (memlens record) or in exact mode, or export folded, flamegraph or pprof";
                return Err(Failure::new(FailureKind::Usage, message));
            }
            write(&args.target, "kcachegrind FILE, or callgrind_annotate FILE", |mut out| {
                callgrind::write(&profile, &mut out)
            })
        }
        ExportFormat::Dhat(args) => export_dhat(args),
        ExportFormat::Folded(args) => {
            let profile = with_amounts(&args.target, args.value)?;
            write(&args.target, "flamegraph.pl FILE > flames.svg, or speedscope FILE", |mut out| {
                folded(&profile, args.tree, args.value, &mut out)
            })
        }
        ExportFormat::Flamegraph(args) => {
            let profile = with_amounts(&args.target, args.value)?;
            write(&args.target, "a browser, or xdg-open FILE", |mut out| {
                flame_graph(&profile, args.tree, args.value, &mut out)
            })
        }
        ExportFormat::Sqlite(args) => {
            let file = Database::of(args.target.open()?).and_then(Database::file);
            let file = file.map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
            write(&args.target, "sqlite3 FILE .schema", |out| out.write_all(&file))
        }
        ExportFormat::Pprof(args) => {
            let profile = with_amounts(&args.target, None)?;
            write(&args.target, "go tool pprof -http=: FILE", |mut out| pprof(&profile, args.tree, &mut out))
        }
    }
}

/// Writes the heap, and says what it leaves out.
fn export_dhat(args: &DhatArgs) -> Result<u8, Failure> {
    let profile = match args.value {
        Some(_) => with_amounts(&args.target, args.value)?,
        None => args.target.open()?,
    };
    let dhat = Dhat::of(&profile, args.value);
    if dhat.is_empty() {
        let message = match args.value {
            Some(column) => format!("no {} are of heap blocks: there is nothing to export", column.as_str()),
            None => "the profile has no heap blocks whose allocation was seen: there is nothing to export"
                .to_owned(),
        };
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let looks = "valgrind's dh_view.html, or profiler.firefox.com";
    let code = write(&args.target, looks, |mut out| dhat.write(&mut out))?;
    if dhat.left_out() >= 0.0005 {
        streams::say(&format!(
            "{:.1} % of {} is not in the file, which has heap blocks whose allocation was seen: others, globals, stacks, mappings … (memlens export flamegraph has all)",
            100.0 * dhat.left_out(),
            dhat.cost()
        ));
    }
    Ok(code)
}

/// The profile, if it has any of what is wanted of it.
fn with_amounts(target: &Target, value: Option<Column>) -> Result<Profile, Failure> {
    let profile = target.open()?;
    if let Some(column) = value.filter(|column| !stack_columns().any(|it| it == *column)) {
        let message = format!("--value {}: there is none of it in parts that add up", column.as_str());
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if stacks_total(&profile, value) > 0 {
        return Ok(profile);
    }
    let message = match value {
        Some(column) => format!("the profile has no {}: there is nothing to export", column.as_str()),
        None => "the profile has no accesses and no samples: there is nothing to export".to_owned(),
    };
    Err(Failure::new(FailureKind::Usage, message))
}

/// Writes it, and says what looks at a file like that: commands with `FILE` in place of its name.
fn write(
    target: &Target,
    looks: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<u8, Failure> {
    match target.out.as_deref().filter(|path| path.as_os_str() != "-") {
        None => streams::write_result(write)?,
        Some(path) => {
            result_file::write(path, target.force, write)?;
            streams::say(&format!("look at it with: {}", looks.replace("FILE", &shell::path(path))));
        }
    }
    Ok(0)
}
