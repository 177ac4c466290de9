//! A profile as weighted stacks, for tools that show nothing else: flame graphs, pprof, DHAT's viewer.
//!
//! ```text
//! by data    heap ; main ; build ; nodes ; .next ; walk          where it was made, what it is, who touches it
//! by code    main ; far ; walk ; nodes (heap)                    who touches what, through which calls
//! ```
//!
//! Either tree has each access once, so that the widths of its levels add up to the profile's totals. By code there are the callers where the
//! profile has call paths, else the functions of the instruction alone; fields are in the tree by data.

mod dhat;
mod flame;
mod folded;
mod pprof;
#[cfg(test)]
mod tests;
mod tree_of;

use std::str::FromStr;

use memlens_profile::{CodeIx, FieldIx, FieldShares, FrameIx, ModuleIx, ObjectIx, PackedCounts, Profile};
use memlens_types::{Counts, ObjectKind};

pub use self::dhat::Dhat;
pub use self::flame::flame_graph;
pub use self::folded::folded;
pub use self::pprof::pprof;
use self::tree_of::{Node, TreeOf};
use crate::UnknownWord;
use crate::column::{Column, Content};
use crate::row::{Row, Whole, leading_share, path_function};

/// What stacks grow from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tree {
    /// From where data was made to what it is and who touches it.
    #[default]
    Data,
    /// From where the program began to who touches which data.
    Code,
}

impl Tree {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Data, Self::Code];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Code => "code",
        }
    }

    /// What it shows, for help texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Data => "kind, calls that led to the allocation, object, field, function that touches it",
            Self::Code => "calls that lead to the access, function, object",
        }
    }
}

impl FromStr for Tree {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let found = Self::ALL.into_iter().find(|tree| tree.as_str() == word.to_lowercase());
        found.ok_or_else(|| UnknownWord::new("tree", word, Self::ALL.iter().map(|tree| tree.as_str()), true))
    }
}

/// A level of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    Kind(ObjectKind),
    Module(ModuleIx),
    /// A function, at a call or an access.
    Frame(FrameIx),
    Object(ObjectIx),
    Field(FieldIx),
    /// Code of a file that has no name for it; None: generated code.
    NoName(Option<ModuleIx>),
    /// The callers are not known.
    NoPath,
}

/// A stack, whose object it is of, and what was done there.
#[derive(Clone, Debug, PartialEq)]
struct Weighted {
    stack: Node,
    object: ObjectIx,
    counts: PackedCounts,
}

/// All stacks of a profile, each once, in the order of their levels.
struct Stacks<'a> {
    profile: &'a Profile,
    tree: Tree,
    levels: TreeOf<Level>,
    all: Vec<Weighted>,
}

impl<'a> Stacks<'a> {
    /// Linear in the cells.
    fn of(profile: &'a Profile, tree: Tree) -> Self {
        let mut parts = Parts { levels: TreeOf::new(), all: Vec::new() };
        match tree {
            Tree::Data => parts.by_data(profile),
            Tree::Code if !profile.path_cells.is_empty() => parts.by_path(profile),
            Tree::Code => parts.by_code(profile),
        }
        let Parts { levels, mut all } = parts;
        let ranks = levels.ranks();
        all.sort_by_key(|part| (*ranks.get(part.stack), part.object));
        // One entry of all parts of one stack.
        all.dedup_by(|part, first| {
            let is_same = (part.stack, part.object) == (first.stack, first.object);
            if is_same {
                let mut sum = first.counts.get();
                sum += &part.counts.get();
                first.counts = sum.into();
            }
            is_same
        });
        Self { profile, tree, levels, all }
    }

    /// What a level is called.
    fn name(&self, level: Level) -> String {
        let profile = self.profile;
        let module = |module: Option<ModuleIx>| profile.module(module).map(|module| module.name().to_owned());
        match level {
            Level::Kind(kind) => kind.as_str().to_owned(),
            Level::Module(ix) => module(Some(ix)).unwrap_or_default(),
            Level::Frame(ix) => match profile.frames.get(ix.index()) {
                Some(frame) => path_function(profile, frame),
                None => String::new(),
            },
            Level::Object(_) if self.tree == Tree::Code => self.name_with_kind(level),
            Level::Object(ix) => {
                profile.objects.get(ix.index()).map(|object| object.name.clone()).unwrap_or_default()
            }
            Level::Field(ix) => {
                let field = profile.fields.get(ix.index());
                let name = |field: &memlens_profile::Field| match (&field.name, field.offset_bytes) {
                    (Some(name), _) => format!(".{name}"),
                    (None, Some(offset)) => format!("bytes from {offset}"),
                    (None, None) => "in no field".to_owned(),
                };
                field.map(name).unwrap_or_default()
            }
            Level::NoName(ix) => match module(ix) {
                Some(module) => format!("{module} (no symbol)"),
                None => "generated code".to_owned(),
            },
            Level::NoPath => "no call path known".to_owned(),
        }
    }

    /// As [`Self::name`], of objects with what they are: functions may have the same name.
    fn name_with_kind(&self, level: Level) -> String {
        let Level::Object(ix) = level else { return self.name(level) };
        let object = self.profile.objects.get(ix.index());
        object.map(|object| format!("{} ({})", object.name, object.kind.as_str())).unwrap_or_default()
    }
}

/// What stacks are made of, in any order.
struct Parts {
    levels: TreeOf<Level>,
    all: Vec<Weighted>,
}

impl Parts {
    fn add(&mut self, stack: Node, object: ObjectIx, counts: impl Into<PackedCounts>) {
        let counts = counts.into();
        if counts != PackedCounts::default() {
            self.all.push(Weighted { stack, object, counts });
        }
    }

    /// By where data was made.
    fn by_data(&mut self, profile: &Profile) {
        let shares = FieldShares::of(profile);
        let objects = (0..profile.objects.len()).map(ObjectIx::from_index);
        let made = objects.map(|object| self.levels.below(Node::ROOT, made_at(profile, object)));
        let made: Vec<Node> = made.collect();
        let code = Functions::of(profile);
        for cell in &profile.cells {
            let Some(&made) = made.get(cell.object.index()) else { continue };
            let by = code.at(cell.code);
            let mut has_fields = false;
            for (field, piece) in shares.pieces(cell) {
                has_fields = true;
                let field = self.levels.below(made, [Level::Field(field)]);
                let stack = self.levels.below(field, by.iter().copied());
                self.add(stack, cell.object, piece);
            }
            if !has_fields {
                let stack = self.levels.below(made, by.iter().copied());
                self.add(stack, cell.object, cell.counts.clone());
            }
        }
        self.without_code(profile, |_, object| made[object.index()]);
    }

    /// By the calls that lead to accesses.
    fn by_path(&mut self, profile: &Profile) {
        // Parents come first.
        let mut nodes: Vec<Node> = Vec::with_capacity(profile.paths.len());
        for path in &profile.paths {
            let above = path.parent.and_then(|parent| nodes.get(parent.index())).copied();
            nodes.push(self.levels.below(above.unwrap_or(Node::ROOT), [Level::Frame(path.frame)]));
        }
        let unknown = self.levels.below(Node::ROOT, [Level::NoPath]);
        for cell in &profile.path_cells {
            let path = cell.path.and_then(|path| nodes.get(path.index())).copied();
            let stack = self.levels.below(path.unwrap_or(unknown), [Level::Object(cell.object)]);
            self.add(stack, cell.object, cell.counts.clone());
        }
        self.without_code(profile, |levels, object| levels.below(unknown, [Level::Object(object)]));
    }

    /// By the functions of the instructions.
    fn by_code(&mut self, profile: &Profile) {
        let code = Functions::of(profile);
        for cell in &profile.cells {
            let levels = code.at(cell.code).iter().copied().chain([Level::Object(cell.object)]);
            let stack = self.levels.below(Node::ROOT, levels);
            self.add(stack, cell.object, cell.counts.clone());
        }
        self.without_code(profile, |levels, object| {
            levels.below(Node::ROOT, [Level::NoPath, Level::Object(object)])
        });
    }

    /// What no instruction did: lines that were written back, and all that a bus sees.
    fn without_code(&mut self, profile: &Profile, stack: impl Fn(&mut TreeOf<Level>, ObjectIx) -> Node) {
        for (at, object) in profile.objects.iter().enumerate() {
            let ix = ObjectIx::from_index(at);
            let counts = match profile.cells.is_empty() {
                true => object.counts,
                false => Counts { dram_writes: object.counts.dram_writes, ..Counts::default() },
            };
            if counts != Counts::default() {
                let stack = stack(&mut self.levels, ix);
                self.add(stack, ix, counts);
            }
        }
    }
}

/// What an object is, from its kind on: the calls that led to its allocation, else the file that it is in.
fn made_at(profile: &Profile, ix: ObjectIx) -> Vec<Level> {
    let Some(object) = profile.objects.get(ix.index()) else { return Vec::new() };
    let mut levels = vec![Level::Kind(object.kind)];
    match object.site.and_then(|site| profile.stacks.get(site.index())) {
        Some(stack) => levels.extend(stack.0.iter().rev().map(|&frame| Level::Frame(frame))),
        None => levels.extend(object.module.map(Level::Module)),
    }
    levels.push(Level::Object(ix));
    levels
}

/// The functions at each row of code, the outermost first.
struct Functions(Vec<Vec<Level>>);

impl Functions {
    fn of(profile: &Profile) -> Self {
        let functions = profile.code.iter().map(|code| {
            if profile.is_of_bus() {
                // Which code it was a bus does not tell.
                return Vec::new();
            }
            let stack = code.stack.and_then(|stack| profile.stacks.get(stack.index()));
            let frames = stack.map(|stack| stack.0.as_slice()).unwrap_or_default().iter().rev();
            let level = |frame: &FrameIx| {
                let has_name = profile.frames.get(frame.index()).is_some_and(|it| it.function.is_some());
                if has_name { Level::Frame(*frame) } else { Level::NoName(code.module) }
            };
            let levels: Vec<Level> = frames.map(level).collect();
            if levels.is_empty() { vec![Level::NoName(code.module)] } else { levels }
        });
        Self(functions.collect())
    }

    fn at(&self, code: CodeIx) -> &[Level] {
        self.0.get(code.index()).map(Vec::as_slice).unwrap_or_default()
    }
}

/// How much of a column, else of what tables are ranked by, stacks have together; of one that the profile does not know, nothing.
pub fn stacks_total(profile: &Profile, column: Option<Column>) -> u64 {
    let amounts = Amounts::of(profile);
    let column = column.unwrap_or_else(|| amounts.leading());
    amounts.in_counts(&profile.totals()).column(column).unwrap_or(0)
}

/// Columns of which stacks have amounts: what accesses and samples do, and not how large objects are.
pub fn stack_columns() -> impl Iterator<Item = Column> {
    Column::ALL.into_iter().filter(|column| column.adds_up() && !column.is_of_program())
}

/// What is measured in stacks: a column, its unit, and how much of it some counts are.
struct Amounts<'a> {
    profile: &'a Profile,
    whole: Whole,
}

impl<'a> Amounts<'a> {
    fn of(profile: &'a Profile) -> Self {
        Self { profile, whole: Whole::of(profile, &profile.totals()) }
    }

    /// What matters most in this profile, as tables are ranked: stalls, waiting, time, events, lines.
    fn leading(&self) -> Column {
        match leading_share(self.profile) {
            Column::StallShare => Column::StallCycles,
            share => share,
        }
    }

    /// How much is in some counts.
    fn in_counts(&self, counts: &Counts) -> Amount {
        let row = Row::new(self.profile, String::new(), counts, true, self.whole);
        Amount { row, cost: self.profile.cost(counts) }
    }

    /// Columns that the profile has, the one that matters most last, with their names and units.
    fn columns(&self) -> Vec<(Column, &'static str, &'static str)> {
        let totals = self.in_counts(&self.profile.totals());
        let leading = self.leading();
        let (of_cost, unit) = self.cost();
        let named = |column: Column| match column {
            Column::Share => (column, of_cost, unit),
            _ => (column, column.as_str(), unit_of(column)),
        };
        // Of what a profile does not count there is nothing.
        let is_known = |column: &Column| {
            // The cost has its own name.
            let is_cost = *column == Column::WaitCycles;
            !is_cost && *column != leading && totals.column(*column).is_some_and(|it| it > 0)
        };
        let mut columns: Vec<_> = stack_columns().filter(is_known).map(named).collect();
        columns.push(named(leading));
        columns
    }

    /// Name and unit of the cost.
    fn cost(&self) -> (&'static str, &'static str) {
        match &self.profile.run.sampling {
            Some(sampling) if sampling.unit == memlens_profile::SampleUnit::Nanoseconds => {
                ("time", "nanoseconds")
            }
            Some(_) => ("events", "count"),
            None if self.profile.is_of_bus() => ("lines_read", "count"),
            None => ("wait_cycles", "cycles"),
        }
    }

    /// Name and unit of a column.
    fn name_of(&self, column: Column) -> (&'static str, &'static str) {
        if column == Column::Share { self.cost() } else { (column.as_str(), unit_of(column)) }
    }
}

/// How much some counts are.
struct Amount {
    row: Row,
    cost: u64,
}

impl Amount {
    /// Of a column; `None`: the profile does not know it. [`Column::Share`] stands for the cost.
    fn column(&self, column: Column) -> Option<u64> {
        match column {
            Column::Share => Some(self.cost),
            _ => match column.content(&self.row) {
                Content::Count(value) | Content::Bytes(value) => value,
                Content::Text(_) | Content::Ratio(_) => None,
            },
        }
    }
}

fn unit_of(column: Column) -> &'static str {
    match column {
        Column::StallCycles | Column::WaitCycles => "cycles",
        _ if column.is_bytes() => "bytes",
        _ => "count",
    }
}

/// Where a level is in the source: of functions that of their frame, of objects that of their allocation or declaration.
fn place_of(profile: &Profile, level: Level) -> (Option<String>, Option<u32>) {
    let of_frame = |frame: &memlens_profile::Frame| (frame.file.as_deref().map(str::to_owned), frame.line);
    match level {
        Level::Frame(ix) => profile.frames.get(ix.index()).map(of_frame).unwrap_or_default(),
        Level::Object(ix) => {
            let object = profile.objects.get(ix.index());
            let declared = object.and_then(|object| object.declared.as_ref());
            let site =
                object.and_then(|object| profile.stack_frames(object.site).find(|it| it.line.is_some()));
            let of_declared = declared.map(|at| (Some(at.file.clone()), Some(at.line)));
            of_declared.or_else(|| site.map(of_frame)).unwrap_or_default()
        }
        _ => (None, None),
    }
}
