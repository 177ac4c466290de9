//! The heap in the format of valgrind's DHAT, version 2 (`dhat/dh_main.c` of valgrind 3.19), for its viewer and what else reads it.
//!
//! A program point is a call stack that allocated. Usually its bytes and blocks are what was allocated there, its reads and writes the bytes that
//! the program read and wrote of it. With a column its *bytes* are an amount of that column and its *blocks* the accesses or samples that the
//! amount is of, so that an average size is what an access costs; the file names these units.
//!
//! Left out is what profiles do not hold: how long blocks lived and which were there at the heap's maximum and at the end (`bklt`), and how often
//! each byte of a block was accessed (`acc`): fields are looked at in a part of the accesses only.
//!
//! The viewer refuses a file that has two points with the same frames. Frames are told apart by their texts here, and points by their frames.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use memlens_profile::place::source_place;
use memlens_profile::{Frame, Object, Profile};
use memlens_types::ObjectKind;
use serde::Serialize;

use super::folded::one_line;
use super::{Amount, Amounts};
use crate::column::Column;

/// What DHAT's format can say of a profile, and how much it cannot.
pub struct Dhat {
    document: Document,
    left_out: f64,
    cost: &'static str,
}

impl Dhat {
    /// Of a profile's heap: what was allocated, or an amount of a column. Linear in the objects, times what their call stacks are deep.
    pub fn of(profile: &Profile, column: Option<Column>) -> Self {
        let amounts = Amounts::of(profile);
        let cost = column.unwrap_or_else(|| amounts.leading());
        let total = amounts.in_counts(&profile.totals());
        let units = column.map(|column| Units::of(&amounts, column, &total));
        let (mut frames, mut points) = (Frames::new(), BTreeMap::<Vec<usize>, Point>::new());
        let mut held = 0;
        for object in profile.objects.iter().filter(|object| object.kind == ObjectKind::Heap) {
            let amount = amounts.in_counts(&object.counts);
            let point = match &units {
                Some(units) => units.point(&amount, object),
                None => Point::of_blocks(&amount, object),
            };
            if let Some(point) = point {
                held += amount.column(cost).unwrap_or(0);
                let fs = frames.of(profile, object);
                points
                    .entry(fs)
                    .or_insert_with_key(|fs| Point { fs: fs.clone(), ..Point::default() })
                    .add(&point);
            }
        }
        let (te, tu, mtu) = end(profile);
        let estimated = if profile.run.estimated { ", estimated" } else { "" };
        let of_what =
            column.map(|column| format!("{} of the ", amounts.name_of(column).0)).unwrap_or_default();
        let document = Document {
            version: 2,
            mode: format!("{of_what}heap, memlens {}{estimated}", profile.run.mode),
            verb: "Allocated",
            bklt: false,
            bkacc: column.is_none() && total.column(Column::LoadBytes).is_some(),
            bu: units.as_ref().map(|units| units.amount),
            bsu: units.as_ref().map(|units| units.amount),
            bksu: units.as_ref().map(|units| units.part_name),
            tu,
            mtu,
            cmd: one_line(&profile.run.command.join(" ")),
            pid: profile.run.pid.unwrap_or(0),
            te,
            pps: points.into_values().collect(),
            ftbl: frames.texts,
        };
        let all = total.column(cost).unwrap_or(0);
        let left_out = if all > 0 { all.saturating_sub(held) as f64 / all as f64 } else { 0.0 };
        Self { document, left_out, cost: amounts.name_of(cost).0 }
    }

    /// Whether no point is known.
    pub fn is_empty(&self) -> bool {
        self.document.pps.is_empty()
    }

    /// What part of the profile's cost, 0 to 1, is of data that is in no point: variables, stacks, mappings, and blocks whose allocation
    /// nobody saw.
    pub fn left_out(&self) -> f64 {
        self.left_out
    }

    /// What [`Self::left_out`] is a part of: the column's name, else that of what tables are ranked by.
    pub fn cost(&self) -> &'static str {
        self.cost
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, &self.document)?;
        out.write_all(b"\n")
    }
}

/// The file, with the format's own names.
#[derive(Serialize)]
struct Document {
    #[serde(rename = "dhatFileVersion")]
    version: u32,
    mode: String,
    verb: &'static str,
    /// Whether lifetimes are known.
    bklt: bool,
    /// Whether reads and writes are.
    bkacc: bool,
    /// Unit of bytes: one, several.
    #[serde(skip_serializing_if = "Option::is_none")]
    bu: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bsu: Option<&'static str>,
    /// Unit of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    bksu: Option<&'static str>,
    /// Unit of time, and a million of it.
    tu: &'static str,
    #[serde(rename = "Mtu")]
    mtu: &'static str,
    cmd: String,
    pid: u32,
    /// When the program ended.
    te: u64,
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

/// A program point.
#[derive(Default, Serialize)]
struct Point {
    /// All bytes and blocks.
    tb: u64,
    tbk: u64,
    /// Bytes read and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    rb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wb: Option<u64>,
    /// Frames by their place in `ftbl`, innermost first.
    fs: Vec<usize>,
}

impl Point {
    /// What an object's blocks are; `None`: nobody saw them allocated.
    fn of_blocks(amount: &Amount, object: &Object) -> Option<Self> {
        let (rb, wb) = (amount.column(Column::LoadBytes), amount.column(Column::StoreBytes));
        Some(Self { tb: object.bytes?, tbk: object.blocks, rb, wb, fs: Vec::new() })
    }

    fn add(&mut self, other: &Self) {
        let sum = |one: Option<u64>, more: Option<u64>| more.map(|more| one.unwrap_or(0) + more);
        self.tb += other.tb;
        self.tbk += other.tbk;
        self.rb = sum(self.rb, other.rb);
        self.wb = sum(self.wb, other.wb);
    }
}

/// What stands for bytes and blocks where an amount is shown.
struct Units {
    column: Column,
    amount: &'static str,
    /// What the amount is divided by; `None`: the blocks.
    part: Option<Column>,
    part_name: &'static str,
}

impl Units {
    fn of(amounts: &Amounts<'_>, column: Column, total: &Amount) -> Self {
        let amount = match amounts.name_of(column) {
            (_, unit @ "nanoseconds") => unit,
            (name, _) => name,
        };
        let part = [Column::Accesses, Column::Samples].into_iter().find(|part| total.column(*part).is_some());
        Self { column, amount, part, part_name: part.map_or("blocks", Column::as_str) }
    }

    /// `None`: there is none of the amount.
    fn point(&self, amount: &Amount, object: &Object) -> Option<Point> {
        let tb = amount.column(self.column).filter(|&it| it > 0)?;
        let tbk = self.part.map_or(Some(object.blocks), |part| amount.column(part)).unwrap_or(0);
        Some(Point { tb, tbk, ..Point::default() })
    }
}

/// The end of the run, its unit and a million of it: instructions where they were counted, else time; 0 where neither is known.
fn end(profile: &Profile) -> (u64, &'static str, &'static str) {
    match (profile.run.instructions, profile.run.wall_seconds) {
        (None, Some(seconds)) => ((seconds * 1e6) as u64, "µs", "s"),
        (instructions, _) => (instructions.unwrap_or(0), "instrs", "Minstr"),
    }
}

/// The table of frames, each text once.
struct Frames {
    texts: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl Frames {
    /// The format wants the root of all stacks first.
    fn new() -> Self {
        Self { texts: vec!["[root]".to_owned()], numbers: HashMap::new() }
    }

    /// Where an object was allocated, innermost frame first; its name where that is not known.
    fn of(&mut self, profile: &Profile, object: &Object) -> Vec<usize> {
        let frames = profile.stack_frames(object.site).map(|frame| self.number(frame_text(profile, frame)));
        let frames: Vec<usize> = frames.collect();
        if frames.is_empty() { vec![self.number(object.name.clone())] } else { frames }
    }

    fn number(&mut self, text: String) -> usize {
        let texts = &mut self.texts;
        *self.numbers.entry(one_line(&text)).or_insert_with_key(|text| {
            texts.push(text.clone());
            texts.len() - 1
        })
    }
}

/// As valgrind writes frames: `0x1139: main (app.c:3)`, without a source line `0x1139: main (in /bin/app)`. Addresses are module offsets.
fn frame_text(profile: &Profile, frame: &Frame) -> String {
    let of_module = || profile.module(frame.module).map(|module| format!("in {}", module.path));
    let place = source_place(frame).or_else(of_module).map(|place| format!(" ({place})"));
    let function = frame.function.as_deref().unwrap_or("???");
    format!("0x{:X}: {function}{}", frame.offset, place.unwrap_or_default())
}
