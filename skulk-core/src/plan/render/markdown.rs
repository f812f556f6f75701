//! How does a report read in Markdown? A bold outcome, a list of facts, and tables as GitHub writes them.

use super::view::{Mark, Row, Table, View};

pub(super) fn render(view: &View<'_>) -> String {
    let mut out = format!("**{}**\n\n", escape(&view.outcome));
    for (name, value) in &view.facts {
        out += &format!("- {name}: {}\n", escape(value));
    }
    for table in &view.tables {
        out += &format!("\n### {}\n\n", table.title);
        lines(table, &mut out);
        if let Some(note) = &table.note {
            out += &format!("\n{}\n", escape(note));
        }
    }
    if !view.would_fit.is_empty() {
        out.push_str("\n### Would fit if\n\n");
    }
    for way in &view.would_fit {
        out += &format!("- {}\n", escape(way));
    }
    out
}

fn lines(table: &Table, out: &mut String) {
    let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    *out += &cells(table.columns.iter().map(|column| column.name.to_owned()).collect());
    let rule = |number: bool| if number { "---:" } else { "---" }.to_owned();
    *out += &cells(table.columns.iter().map(|column| rule(column.number)).collect());
    for Row { cells: texts, mark } in &table.rows {
        let cell = |text: &String| match mark {
            Mark::None => escape(text),
            Mark::Chosen | Mark::Over if text.trim().is_empty() => String::new(),
            Mark::Chosen | Mark::Over => format!("**{}**", escape(text)),
        };
        *out += &cells(texts.iter().map(cell).collect());
    }
}

/// Text that is neither markup, nor HTML, nor the end of a cell.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}
