//! How does a report read in a notebook? Tables, and bars of what fills each device.

use super::markup::{ALERT, Bar, KINDS, escape};
use super::view::{Column, Device, Mark, Row, Table, View};

/// Devices that get a bar at most; the table says how many there are.
const BARS: usize = 64;

const CELL: &str = "padding:2px 8px;border-bottom:1px solid rgba(128,128,128,.3)";

pub(super) fn render(view: &View<'_>) -> String {
    let mut out = String::from("<div style=\"font-size:13px;line-height:1.5\">\n");
    let colour = if view.refused { format!(";color:{ALERT}") } else { String::new() };
    out += &format!("<p style=\"font-weight:bold{colour}\">{}</p>\n", escape(&view.outcome));
    out += "<table style=\"border-collapse:collapse\">\n";
    for (name, value) in &view.facts {
        let label = format!("<th style=\"{CELL};text-align:left\">{name}</th>");
        out += &format!("<tr>{label}<td style=\"{CELL};text-align:left\">{}</td></tr>\n", escape(value));
    }
    out += "</table>\n";
    bars(&view.devices, &mut out);
    for table in &view.tables {
        lines(table, &mut out);
    }
    if !view.would_fit.is_empty() {
        out += &title("Would fit if");
        let items: String = view.would_fit.iter().map(|way| format!("<li>{}</li>\n", escape(way))).collect();
        out += &format!("<ul>\n{items}</ul>\n");
    }
    out += "</div>\n";
    out
}

fn title(text: &str) -> String {
    format!("<p style=\"font-weight:bold;margin:12px 0 4px\">{}</p>\n", escape(text))
}

fn bars(devices: &[Device<'_>], out: &mut String) {
    if devices.is_empty() {
        return;
    }
    *out += &title("Memory");
    let swatch = |colour: &str| format!("display:inline-block;width:10px;height:10px;background:{colour}");
    let kinds = KINDS.iter().map(|(kind, colour)| (*kind, swatch(colour)));
    let free = ("free", format!("{};box-sizing:border-box;border:1px solid #888888", swatch("transparent")));
    let legend: Vec<_> = kinds
        .chain([free])
        .map(|(kind, style)| format!("<span style=\"{style}\"></span> {}", escape(kind)))
        .collect();
    *out += &format!("<p>{}</p>\n<table style=\"border-collapse:collapse\">\n", legend.join(" &#160; "));
    for device in devices.iter().take(BARS) {
        let style =
            if device.report.over() > 0 { format!(";color:{ALERT};font-weight:bold") } else { String::new() };
        *out += &format!(
            "<tr><td style=\"{CELL};text-align:left\">{} ({})</td><td style=\"{CELL};width:360px\">{}</td>\
             <td style=\"{CELL};text-align:left{style}\">{}</td></tr>\n",
            escape(&device.node),
            escape(&device.name),
            bar(&device.bar),
            escape(&device.balance),
        );
    }
    *out += "</table>\n";
}

fn bar(bar: &Bar) -> String {
    let mut out = String::from(
        "<div style=\"position:relative;display:flex;width:340px;height:14px;border:1px solid #888888\">",
    );
    for part in &bar.parts {
        out += &format!(
            "<span title=\"{}\" style=\"flex:none;width:{:.2}%;background:{}\"></span>",
            escape(&part.label),
            part.percent,
            part.colour,
        );
    }
    if let Some(limit) = bar.limit {
        out += &format!(
            "<span title=\"budget\" style=\"position:absolute;left:{limit:.2}%;top:-3px;height:20px;\
             border-left:3px solid {ALERT}\"></span>"
        );
    }
    out + "</div>"
}

fn lines(table: &Table, out: &mut String) {
    *out += &title(table.title);
    *out += "<table style=\"border-collapse:collapse\">\n<tr>";
    let align = |column: &Column| if column.number { "right" } else { "left" };
    for column in &table.columns {
        *out += &format!("<th style=\"{CELL};text-align:{}\">{}</th>", align(column), escape(column.name));
    }
    *out += "</tr>\n";
    for Row { cells, mark } in &table.rows {
        *out += &match mark {
            Mark::None => "<tr>".to_owned(),
            Mark::Chosen => "<tr style=\"font-weight:bold\">".to_owned(),
            Mark::Over => format!("<tr style=\"font-weight:bold;color:{ALERT}\">"),
        };
        for (cell, column) in cells.iter().zip(&table.columns) {
            *out += &format!("<td style=\"{CELL};text-align:{}\">{}</td>", align(column), escape(cell));
        }
        *out += "</tr>\n";
    }
    *out += "</table>\n";
    if let Some(note) = &table.note {
        *out += &format!("<p>{}</p>\n", escape(note));
    }
}
