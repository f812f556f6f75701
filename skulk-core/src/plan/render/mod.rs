//! How does a report read? One view of it, and the forms that show that view: text, Markdown, HTML, SVG.

mod html;
mod json;
mod markdown;
mod markup;
mod svg;
mod text;
mod view;
mod words;

#[cfg(test)]
mod tests;

use std::fmt;

use super::report::PlanReport;
use view::View;

impl PlanReport {
    /// All of it as JSON, indented: `outcome`, the line that the other forms begin with, then the fields of
    /// this type in camelCase, from which `serde_json` reads the report again. Numbers that are not finite are
    /// `null`.
    pub fn to_json(&self) -> String {
        json::render(self)
    }

    /// As Markdown: a line with the outcome, a list of facts, and tables. What came from cards and clusters
    /// is escaped.
    pub fn to_markdown(&self) -> String {
        markdown::render(&View::new(self))
    }

    /// As a fragment of HTML, as Jupyter shows it: tables, and a bar for each device with what fills it. It
    /// takes its text colour from the page, needs neither style sheet nor script, and escapes what came from
    /// cards and clusters.
    pub fn to_html(&self) -> String {
        html::render(&View::new(self))
    }

    /// As an SVG picture: nodes with their devices and shards, in the order a token passes them, then the
    /// owners of experts, and how they talk. Of more than 24 nodes it shows the first and says so.
    pub fn to_svg(&self) -> String {
        svg::render(&View::new(self))
    }
}

/// As text for terminals, in aligned columns; the first line is the outcome.
impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::render(&View::new(self)))
    }
}
