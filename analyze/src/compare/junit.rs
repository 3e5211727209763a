//! A comparison as JUnit XML, for CI systems that display it. Each gate is a test case; an inconclusive or
//! suspect gate is a skipped test case with the reason as its message.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::judge::{Comparison, Judged, Outcome};
use analyze_run::error::AnalyzeError;
use analyze_run::text;

fn case(gate: &Judged) -> TestCase {
    let reason = text::harmless(&gate.reason);
    let status = match gate.outcome {
        Outcome::Pass => TestCaseStatus::success(),
        Outcome::Regression => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(reason).set_type("regression");
            status
        }
        Outcome::Inconclusive | Outcome::Suspect => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("{}: {reason}", gate.outcome.name()));
            status
        }
    };
    let mut case = TestCase::new(text::harmless(&format!("{} [{}]", gate.gate.text, gate.key)), status);
    case.set_classname("analyze.compare");
    case
}

/// Renders the comparison as JUnit XML.
///
/// # Errors
/// Returns an error if the XML cannot be written.
pub fn text(comparison: &Comparison) -> Result<String, AnalyzeError> {
    let mut suite = TestSuite::new("analyze compare");
    suite.add_test_cases(comparison.gates.iter().map(case));
    let mut report = Report::new("inquest");
    report.add_test_suite(suite);
    report.to_string().map_err(|error| AnalyzeError::Internal(error.to_string()))
}
