//! The built program, called as its users call it. One test program: each more would be linked, and would leave processors idle
//! while its longest test ends.

mod support;

mod advise;
mod allocators;
mod attached;
mod burst;
mod calibrate;
mod callers;
mod check;
mod command_line;
mod dhat;
mod diff;
mod faults;
mod follow;
mod forked;
mod formats;
mod generated_code;
mod huge_pages;
mod import;
mod merge;
mod nodes;
mod over_time;
mod query;
mod report;
mod run;
mod sample;
mod sample_faults;
mod sharing;
mod trace;
