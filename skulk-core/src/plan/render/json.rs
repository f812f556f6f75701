//! How does a report read to programs? Its own fields, below the outcome in words.

use serde::Serialize;

use super::view;
use crate::plan::report::PlanReport;

#[derive(Serialize)]
struct Document<'a> {
    outcome: String,
    #[serde(flatten)]
    report: &'a PlanReport,
}

pub(super) fn render(report: &PlanReport) -> String {
    let document = Document { outcome: view::outcome(report), report };
    // Serialising fails for maps whose keys are no strings only, and a report has no maps.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}
