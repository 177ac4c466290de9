//! A check in the form in which test runners report, which build servers show.

use memlens_profile::Profile;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::hold::{Check, Verdict};
use super::text::check_text;
use crate::header::command;

/// No width: build servers break lines themselves.
const WIDTH: usize = usize::MAX;

/// JUnit's XML: a suite, and in it a test for each condition. What is not sure is a success with a text.
///
/// # Errors
/// Those of writing XML, into memory: none are known.
pub fn check_junit(profile: &Profile, check: &Check) -> Result<String, String> {
    let mut suite = TestSuite::new("memlens check");
    for held in &check.conditions {
        let alone = Check { conditions: vec![held.clone()] };
        let text = check_text(&alone, WIDTH, false);
        // Without the sum.
        let text = text.trim_end().rsplit_once('\n').map_or("", |(text, _)| text);
        let mut status = match held.verdict() {
            Verdict::Fails => TestCaseStatus::non_success(NonSuccessKind::Failure),
            _ => TestCaseStatus::success(),
        };
        if held.verdict() == Verdict::Fails {
            status.set_message(text.lines().next().unwrap_or_default());
            status.set_description(text);
        }
        let mut case = TestCase::new(held.condition.to_string(), status);
        case.set_classname(command(profile));
        case.set_system_out(text);
        suite.add_test_case(case);
    }
    let mut report = Report::new("memlens");
    report.add_test_suite(suite);
    report.to_string().map_err(|error| error.to_string())
}
