//! How a profile is shown: tables for people, JSON and CSV for programs; callgrind, pprof, DHAT and flame graphs for other tools.
//!
//! What people read is laid out in pieces with looks (`styled.rs`). These become text with a terminal's codes ([`table`],
//! [`object_detail`], [`code_detail`]), or lines for something that shows them itself, each row with what it is of
//! ([`table_page`], [`target_page`]).
//!
//! The crate deliberately does not know how profiles are made or stored, nor anything of the process
//! it runs in: terminal width and colour are told to it, and it returns text.
#![forbid(unsafe_code)]

mod advice;
pub mod callgrind;
mod check;
mod code_detail;
mod column;
mod compare;
mod compare_text;
mod csv;
mod delinquent;
mod detail;
mod diff;
mod elide;
mod field;
mod grid;
mod header;
mod html;
mod interval;
mod json;
mod known;
mod matching;
mod namesakes;
mod number;
mod over_time;
mod own_pools;
mod page;
mod pair_header;
mod pattern;
mod plain_table;
mod prediction;
pub mod rank;
mod row;
mod stacks;
mod styled;
mod table;
mod target;
mod target_page;
mod unlike;
mod unnamed_code;
mod word;
mod zero_pages;

use memlens_profile::place;

pub use advice::{ADVICE_SCHEMA, advice_json, advice_text, comes_by_steps};
pub use check::{
    CHECK_SCHEMA, Check, CheckError, Condition, ConditionError, Held, HeldCondition, Verdict, check,
    check_json, check_junit, check_text,
};
pub use code_detail::code_detail;
pub use column::Column;
pub use compare::{COST_SHARE, CompareError, ComparedObject, Comparison, Overlap, compare, leading_column};
pub use compare_text::{COMPARE_SCHEMA, compare_csv, compare_json, compare_table};
pub use csv::{csv, quoted as csv_field};
pub use delinquent::{DELINQUENT_SHARE, DelinquentLoads, delinquent_loads};
pub use detail::object_detail;
pub use diff::{
    DIFF_SCHEMA, Diff, DiffError, DiffRow, Runs, RunsError, Unit, diff, diff_csv, diff_json, diff_table,
    leading_amount,
};
pub use html::{PAGE_ROWS, PageView, html};
pub use json::{SCHEMA, json, json_report};
pub use known::{counts_by_word, meaning_of_count};
pub use number::count as short_count;
pub use over_time::{over_time, over_time_csv, over_time_page};
pub use page::{Page, PlacedColumn, groupings, header_page, summary_page, table_page};
pub use plain_table::{PlainColumn, plain_table};
pub use prediction::prediction_table;
pub use row::{By, thread_name};
pub use stacks::{Dhat, Tree, flame_graph, folded, pprof, stack_columns, stacks_total};
pub use styled::{Line, LineKind, Style};
pub use table::{View, table};
pub use target::Target;
pub use target_page::target_page;
pub use word::{UnknownWord, nearest as nearest_word};
