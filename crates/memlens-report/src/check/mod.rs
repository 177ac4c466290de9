//! Conditions that a profile must not meet, alone or against a baseline: a gate for changes of a program.
//!
//! [`Condition`] is what a user writes (`condition.rs`), [`check`] holds a profile against some (`hold.rs`), which gives a [`Check`], and
//! text, JSON and JUnit show that.

mod condition;
mod hold;
mod json;
mod junit;
mod text;

pub use condition::{Condition, ConditionError};
pub use hold::{Check, CheckError, Held, HeldCondition, Verdict, check};
pub use json::{CHECK_SCHEMA, check_json};
pub use junit::check_junit;
pub use text::check_text;
