//! How does a report read in a terminal? Lines of facts, and tables with aligned columns.

use super::view::{Table, View};
use super::words::width;

pub(super) fn render(view: &View<'_>) -> String {
    let mut out = format!("{}\n", view.outcome);
    if !view.facts.is_empty() {
        out.push('\n');
    }
    let label = view.facts.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
    for (name, value) in &view.facts {
        out += &format!("{name:label$}  {value}\n");
    }
    for table in &view.tables {
        out += &format!("\n{}\n", table.title);
        lines(table, &mut out);
        if let Some(note) = &table.note {
            out += &format!("  {note}\n");
        }
    }
    if !view.would_fit.is_empty() {
        out.push_str("\nWould fit if\n");
    }
    for way in &view.would_fit {
        out += &format!("  - {way}\n");
    }
    out
}

fn lines(table: &Table, out: &mut String) {
    let header: Vec<_> = table.columns.iter().map(|column| column.name.to_owned()).collect();
    let rows: Vec<_> = std::iter::once(&header).chain(table.rows.iter().map(|row| &row.cells)).collect();
    let widths: Vec<_> = (0..header.len())
        .map(|i| rows.iter().filter_map(|cells| cells.get(i)).map(|cell| width(cell)).max().unwrap_or(0))
        .collect();
    for cells in rows {
        let mut line = String::from(" ");
        for ((cell, column), &columns) in cells.iter().zip(&table.columns).zip(&widths) {
            let space = " ".repeat(columns.saturating_sub(width(cell)));
            let (before, after) = if column.number { (space.as_str(), "") } else { ("", space.as_str()) };
            line += &format!(" {before}{cell}{after} ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}
