//! `memlens report`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use memlens_analysis::Finding;
use memlens_profile::{ProcessFolder, Profile};
use memlens_report::{
    By, PAGE_ROWS, PageView, UnknownWord, View, code_detail, csv, html, json_report, object_detail,
    over_time, over_time_csv, table,
};

use crate::advise::Means;
use crate::failure::{Failure, FailureKind, plain};
use crate::family::open_profile;
use crate::result_file;
use crate::streams::{self, Stream};
use crate::view_args::{Top, ViewArgs, column_list};

/// Arguments of `memlens report`.
#[derive(Args, Debug)]
#[command(
    after_long_help = column_list("--sort"),
    before_help = "\
Examples:
  memlens report ls.memlens --by line               lines of code by cost
  memlens report ls.memlens --object 12             one object, and the code that touches it
  memlens report ls.memlens --object column         the same by name, whatever it was allocated by
  memlens report ls.memlens --object 12 --by instruction   each with its pattern in that object
  memlens report ls.memlens --object 12 --by caller   the call paths that lead to it
  memlens report ls.memlens --over-time             when it waited for what, and how much memory was live
  memlens report ls.memlens --format csv --top 100  for a spreadsheet
  memlens report ls.memlens --html ls.html --open   one page with everything, for a browser"
)]
pub struct ReportArgs {
    /// The profile, as `memlens run` or `memlens record` left it
    pub profile: PathBuf,

    /// A table for people, or everything for programs (json), or the rows for spreadsheets (csv)
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: Format,

    /// Show an object and the code that touches it: its number from the table's # column, or its name
    ///
    /// A name shows all objects of that name, added up and each by itself, but for those that make less than a
    /// hundredth of it beside one; a part of the name will do if only one has
    /// it. With --by function or instruction, those in place of lines; with --by caller, the call paths that lead there
    #[arg(long, value_name = "ID|NAME", conflicts_with = "code")]
    pub object: Option<String>,

    /// Show one function's code and the objects it touches
    #[arg(long, value_name = "FUNCTION", conflicts_with = "by")]
    pub code: Option<String>,

    /// Show when the program waited for what, and how much of its heap was live, in 20 parts of the run or as many as --top says
    ///
    /// With --object when it did so for that object. With --format csv a row for each slice of the time and object
    #[arg(long, conflicts_with_all = ["code", "by", "sort", "notes"])]
    pub over_time: bool,

    /// Write one page for a browser: tables to sort and filter, what is behind each object, structures by cache line, what to do
    ///
    /// It needs no network and no other file; `-` writes it to stdout. Tables have 200 rows unless --top says otherwise
    #[arg(long, value_name = "FILE", conflicts_with_all = ["object", "code", "processes", "format", "by", "sort", "notes", "over_time"])]
    pub html: Option<PathBuf>,

    /// Open the page in the desktop's browser
    #[arg(long, requires = "html")]
    pub open: bool,

    /// Replace the page if it exists
    #[arg(long, requires = "html")]
    pub force: bool,

    /// Show one process of a profile recorded with --follow children or merged: its number or process id
    #[arg(long, value_name = "N|PID")]
    pub process: Option<u32>,

    /// List the processes of a profile recorded with --follow children or merged
    #[arg(long, conflicts_with_all = ["process", "object", "code", "by", "format", "sort", "top", "over_time"])]
    pub processes: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, as wide as the terminal; COLUMNS=200 in the environment makes it wider.
    Table,
    /// Everything; docs/formats.md describes it.
    Json,
    /// The table's rows with all columns; all rows unless --top is given.
    Csv,
}

impl Format {
    /// JSON has everything: how many rows is no question.
    pub fn refuse_top(self, top: Option<Top>) -> Result<(), Failure> {
        if self == Self::Json && top.is_some() {
            let message = "--top does not go with --format json, which has everything";
            return Err(Failure::new(FailureKind::Usage, message));
        }
        Ok(())
    }
}

/// Shows a profile.
pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    refuse_options_without_effect(args)?;
    if let (Some(_), Some(by)) = (&args.object, args.view.by)
        && !matches!(by, By::Caller | By::Function | By::Line | By::Instruction)
    {
        let message = format!(
            "--object goes with --by line, function, instruction or caller, not with --by {}",
            by.as_str()
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.processes {
        return list_processes(args);
    }
    let profile = open_wanted(&args.profile, args.process)?;
    if let Some(page) = &args.html {
        return write_page(args, &profile, page);
    }
    let mut view = args.view.view(Stream::Stdout);
    if args.over_time {
        return show_over_time(args, &profile, &view);
    }
    if let Some(why) = view.by.missing_in(&profile) {
        return Err(Failure::new(FailureKind::Usage, format!("--by {}: {why}", view.by.as_str())));
    }
    match args.format {
        Format::Table => {
            let text = match (&args.object, &args.code) {
                (Some(wanted), _) => object_detail(&profile, wanted, &view).map_err(not_there)?,
                (None, Some(function)) => code_detail(&profile, function, &view).map_err(not_there)?,
                (None, None) => table(&profile, &view),
            };
            streams::write_result(|out| out.write_all(text.as_bytes()))?;
        }
        Format::Json => {
            streams::write_json(&json_report(&profile))?;
        }
        Format::Csv => {
            if args.view.top.is_none() {
                view.top = None;
            }
            streams::write_result(|mut out| csv(&profile, &view, &mut out))?;
        }
    }
    Ok(0)
}

/// When what was done.
fn show_over_time(args: &ReportArgs, profile: &Profile, view: &View) -> Result<u8, Failure> {
    let text = over_time(profile, args.object.as_deref(), view)
        .map_err(|why| Failure::new(FailureKind::Usage, why))?;
    match args.format {
        Format::Csv => streams::write_result(|mut out| over_time_csv(profile, &mut out))?,
        _ => streams::write_result(|out| out.write_all(text.as_bytes()))?,
    }
    Ok(0)
}

/// The report as a page.
fn write_page(args: &ReportArgs, profile: &Profile, page: &Path) -> Result<u8, Failure> {
    let advice = (profile.run.sampling.is_none()).then(|| memlens_analysis::advice(profile));
    let means = advice.as_ref().map(|advice| Means::new(profile, advice, &args.profile));
    let how = |finding: &Finding| means.as_ref()?.of(finding);
    let top = if args.view.top.is_some() { args.view.view(Stream::Stdout).top } else { Some(PAGE_ROWS) };
    let text = html(profile, &PageView { top, advice: advice.as_ref(), how: &how });
    result_file::write(page, args.force, |out| out.write_all(text.as_bytes()))?;
    if args.open {
        return open_in_browser(page);
    }
    Ok(0)
}

/// Hands a page to the desktop's program for it, which may stay or go as it likes.
fn open_in_browser(page: &Path) -> Result<u8, Failure> {
    const OPENER: &str = "xdg-open";
    let mut command = Command::new(OPENER);
    // What a browser prints on its way is no result.
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let why = match command.status() {
        Ok(status) if status.success() => return Ok(0),
        Ok(_) => "it knows no browser".to_owned(),
        Err(error) => plain(&error),
    };
    let message =
        format!("{} is written, but {OPENER} could not open it: {why}; open it in a browser", page.display());
    Err(Failure::new(FailureKind::Io, message))
}

/// The processes of a profile.
fn processes(profile: &Path) -> Result<Vec<ProcessFolder>, Failure> {
    let folders = ProcessFolder::list(profile)?;
    if folders.is_empty() {
        // Says what is wrong if it is no profile at all.
        Profile::open(profile)?;
        let place = profile.display();
        let message = format!(
            "{place} has no profiles of single processes: bursts and samples of a program and its children are one profile; those of \
             --mode exact --follow children, and what memlens merge has made one, are apart, too"
        );
        return Err(Failure::new(FailureKind::Usage, message));
    }
    Ok(folders)
}

/// The profile, or of one of several processes that of this number or process id.
pub fn open_wanted(profile: &Path, process: Option<u32>) -> Result<Profile, Failure> {
    match process {
        Some(wanted) => Ok(Profile::open(&process_folder(profile, wanted)?.path)?),
        None => open_profile(profile),
    }
}

/// The process with this number or, if there is none, this process id; its last program, if it had several.
pub fn process_folder(profile: &Path, wanted: u32) -> Result<ProcessFolder, Failure> {
    let folders = processes(profile)?;
    let by_id = || folders.iter().rfind(|folder| folder.process_id == wanted);
    let found = folders.iter().find(|folder| folder.number == wanted).or_else(by_id);
    found.cloned().ok_or_else(|| {
        let place = profile.display();
        let message =
            format!("no process has number or id {wanted}; list them: memlens report --processes {place}");
        Failure::new(FailureKind::Usage, message)
    })
}

/// Writes a line a process.
fn list_processes(args: &ReportArgs) -> Result<u8, Failure> {
    let folders = processes(&args.profile)?;
    let printable =
        |text: &str| -> String { text.chars().map(|c| if c.is_control() { '?' } else { c }).collect() };
    // Of each what it counts, and unless it cannot be read the profile that was merged, if it was, and its command.
    let mut rows: Vec<(String, Option<[String; 2]>)> = Vec::new();
    for folder in &folders {
        let (number, process_id) = (folder.number, folder.process_id);
        let profile = match Profile::open(&folder.path) {
            Ok(profile) => profile,
            Err(error) => {
                rows.push((format!("{number:>5} {process_id:>8}  not readable: {error}"), None));
                continue;
            }
        };
        let known = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let end = match (profile.run.exit_code, profile.run.signal) {
            (_, Some(signal)) => format!("sig {signal}"),
            (Some(code), None) => code.to_string(),
            // The next program of the same process.
            _ if profile.run.merged_as.is_none()
                && folders.iter().any(|next| next.process_id == process_id && next.number > number) =>
            {
                "exec".to_owned()
            }
            (None, None) => "?".to_owned(),
        };
        let counts = format!(
            "{number:>5} {process_id:>8} {:>8} {end:>6} {:>16} {:>14}",
            known(profile.run.parent_pid.map(u64::from)),
            known(profile.run.instructions),
            profile.totals().accesses(),
        );
        let merged = printable(profile.run.merged_as.as_deref().unwrap_or_default());
        rows.push((counts, Some([merged, printable(&profile.run.command.join(" "))])));
    }
    let head = format!(
        "{:>5} {:>8} {:>8} {:>6} {:>16} {:>14}",
        "N", "PID", "PARENT", "END", "INSTRUCTIONS", "ACCESSES"
    );
    rows.insert(0, (head, Some(["PROFILE", "COMMAND"].map(str::to_owned))));
    let merged = || rows.iter().filter_map(|(_, words)| Some(words.as_ref()?[0].chars().count()));
    // Without merged profiles that column is empty.
    let width = if merged().skip(1).any(|width| width > 0) { merged().max() } else { None };
    let mut text = String::new();
    for (counts, words) in &rows {
        text += counts;
        if let Some([merged, command]) = words {
            let merged = width.map(|width| format!("  {merged:<width$}")).unwrap_or_default();
            text += &format!("{merged}  {command}");
        }
        text.push('\n');
    }
    streams::write_result(|out| out.write_all(text.as_bytes()))?;
    Ok(0)
}

/// An option that would do nothing is a misunderstanding.
fn refuse_options_without_effect(args: &ReportArgs) -> Result<(), Failure> {
    if args.open && args.html.as_deref() == Some(Path::new("-")) {
        return Err(Failure::new(
            FailureKind::Usage,
            "--open needs a file to open: give --html a name, not ‘-’",
        ));
    }
    let detail = args.object.as_ref().map(|_| "--object").or(args.code.as_ref().map(|_| "--code"));
    if args.over_time && args.format == Format::Json {
        let message = "--over-time does not go with --format json, which has everything";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    if args.over_time && args.format == Format::Csv && args.view.top.is_some() {
        let message = "--top does not go with --over-time --format csv, which has all slices";
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let (option, format) = match (args.format, detail, args.view.first_given()) {
        (Format::Json, _, Some(option)) => (option, "json, which has everything"),
        (Format::Json, Some(option), None) => (option, "json, which has everything"),
        (Format::Csv, Some(option), _) => (option, "csv"),
        (Format::Csv, None, _) if args.view.notes => ("--notes", "csv"),
        (_, Some(detail), _) if args.view.notes => {
            let message = format!("--notes is about the whole profile, and does not go with {detail}");
            return Err(Failure::new(FailureKind::Usage, message));
        }
        _ => return Ok(()),
    };
    Err(Failure::new(FailureKind::Usage, format!("{option} does not go with --format {format}")))
}

fn not_there(word: UnknownWord) -> Failure {
    Failure::new(FailureKind::Usage, word.to_string())
}
