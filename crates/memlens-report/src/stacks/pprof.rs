//! The format of pprof: `profile.proto` of github.com/google/pprof, compressed by gzip.
//!
//! Each stack has all amounts that the profile counts; the last, which tools show first, is what memlens ranks by. Data objects are functions, at
//! the place of their allocation or declaration, because tools add up functions; besides each sample has the labels `object`, `kind` and `id`.
//! Addresses are module offsets (svma), with the modules' build-ids.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use memlens_profile::Profile;
use prost::Message;

use super::{Amounts, Level, Stacks, Tree, place_of};

/// Messages of `profile.proto` with the field numbers of its version 3, as far as memlens has something to say.
pub(super) mod proto {
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Sample {
        /// Innermost first.
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
        #[prost(int64, tag = "3")]
        pub num: i64,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
        #[prost(bool, tag = "8")]
        pub has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub has_line_numbers: bool,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

/// Writes the profile. Linear in its stacks, times what they are deep.
///
/// # Errors
/// Those of `out`.
pub fn pprof(profile: &Profile, tree: Tree, out: &mut impl Write) -> io::Result<()> {
    let message = message(profile, tree);
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&message.encode_to_vec())?;
    packed.finish().map(drop)
}

fn message(profile: &Profile, tree: Tree) -> proto::Profile {
    let (stacks, amounts) = (Stacks::of(profile, tree), Amounts::of(profile));
    let mut tables = Tables::new(&stacks);
    let columns = amounts.columns();
    let sample_type = columns
        .iter()
        .map(|&(_, name, unit)| proto::ValueType { r#type: tables.text(name), unit: tables.text(unit) })
        .collect();
    let default_sample_type = columns.last().map_or(0, |&(_, name, _)| tables.text(name));
    let [object, kind, id] = ["object", "kind", "id"].map(|key| tables.text(key));
    let mut sample = Vec::with_capacity(stacks.all.len());
    for stack in &stacks.all {
        let amount = amounts.in_counts(&stack.counts.get());
        let value: Vec<i64> =
            columns.iter().map(|&(column, ..)| signed(amount.column(column).unwrap_or(0))).collect();
        if value.iter().all(|&value| value == 0) {
            continue;
        }
        let label = profile.objects.get(stack.object.index()).map(|it| {
            vec![
                proto::Label { key: object, str: tables.text(&it.name), num: 0 },
                proto::Label { key: kind, str: tables.text(it.kind.as_str()), num: 0 },
                proto::Label { key: id, str: 0, num: i64::from(it.id) },
            ]
        });
        let location_id = stacks.levels.levels(stack.stack).map(|level| tables.location(level)).collect();
        sample.push(proto::Sample { location_id, value, label: label.unwrap_or_default() });
    }
    let command = format!("memlens, {} mode: {}", profile.run.mode, profile.run.command.join(" "));
    let comment = vec![tables.text(&command)];
    let mapping = profile.modules.iter().zip(1..).map(|(module, id)| proto::Mapping {
        id,
        // Addresses are offsets in the file: all of them are in range.
        memory_start: 0,
        memory_limit: u64::MAX,
        filename: tables.text(&module.path),
        build_id: tables.text(module.build_id.as_deref().unwrap_or_default()),
        has_functions: true,
        has_filenames: module.has_debug,
        has_line_numbers: module.has_debug,
    });
    let mapping = mapping.collect();
    proto::Profile {
        sample_type,
        sample,
        mapping,
        location: tables.locations,
        function: tables.functions,
        string_table: tables.texts,
        duration_nanos: profile.run.wall_seconds.map_or(0, |seconds| (seconds * 1e9) as i64),
        comment,
        default_sample_type,
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Texts, functions and locations, each once.
struct Tables<'a> {
    stacks: &'a Stacks<'a>,
    texts: Vec<String>,
    text_numbers: HashMap<String, i64>,
    functions: Vec<proto::Function>,
    function_numbers: HashMap<(i64, i64), u64>,
    locations: Vec<proto::Location>,
    location_numbers: HashMap<Level, u64>,
}

impl<'a> Tables<'a> {
    fn new(stacks: &'a Stacks<'a>) -> Self {
        // The first text is the empty one.
        let text_numbers = HashMap::from([(String::new(), 0)]);
        Self {
            stacks,
            texts: vec![String::new()],
            text_numbers,
            functions: Vec::new(),
            function_numbers: HashMap::new(),
            locations: Vec::new(),
            location_numbers: HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.text_numbers.get(text) {
            return known;
        }
        let number = self.texts.len() as i64;
        self.texts.push(text.to_owned());
        self.text_numbers.insert(text.to_owned(), number);
        number
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (name, filename) = (self.text(name), self.text(file));
        let next = self.functions.len() as u64 + 1;
        *self.function_numbers.entry((name, filename)).or_insert_with(|| {
            self.functions.push(proto::Function { id: next, name, system_name: name, filename });
            next
        })
    }

    fn location(&mut self, level: Level) -> u64 {
        if let Some(&known) = self.location_numbers.get(&level) {
            return known;
        }
        let profile = self.stacks.profile;
        let (file, line) = place_of(profile, level);
        let name = self.stacks.name_with_kind(level);
        let function_id = self.function(&name, file.as_deref().unwrap_or_default());
        let (module, address) = match level {
            Level::Frame(ix) => {
                profile.frames.get(ix.index()).map(|frame| (frame.module, frame.offset)).unwrap_or_default()
            }
            Level::NoName(module) => (module, 0),
            _ => (None, 0),
        };
        let id = self.locations.len() as u64 + 1;
        let line = vec![proto::Line { function_id, line: line.map_or(0, i64::from) }];
        let mapping_id = module.map_or(0, |module| u64::from(module.0) + 1);
        self.locations.push(proto::Location { id, mapping_id, address, line });
        self.location_numbers.insert(level, id);
        id
    }
}
