//! How does a kernel read several matrices? Each has a copy of the files that read one, its names with a number.

use super::kernels::format;
use crate::weights::DType;

/// Members of parameters that each matrix has its own of, and places of its buffers among the operands.
const NUMBERED: [&str; 5] = ["n_rows", "row_bytes", "WEIGHTS", "BIAS", "OUT"];

/// What a kernel has of several matrices: for each of them a format and `files`, and a function that calls the part of the
/// one whose workgroup it is. Nothing where no files are for each.
///
/// Operands are x, then all weights, all biases where there are such, and all results.
pub(super) fn source(files: &[&str], matrices: &[DType]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let n = matrices.len();
    let biased = files.iter().any(|file| file.contains("@binding(BIAS)"));
    let mut all = String::new();
    for (i, dtype) in matrices.iter().enumerate() {
        let (weights, bias, out) = (1 + i, 1 + n + i, 1 + n + i + if biased { n } else { 0 });
        all +=
            &format!("\nconst WEIGHTS_{i} = {weights};\nconst BIAS_{i} = {bias};\nconst OUT_{i} = {out};\n");
        let mut own = format(*dtype);
        own.extend(files);
        all += &numbered(&own.join("\n"), i);
    }
    if files.iter().any(|file| file.contains("fn part(")) {
        all += "\nfn compute(me: Place, index: u32, row: u32, rows: u32) {\n    var i = index;\n";
        for i in 0..n {
            all += &format!(
                "    let n_{i} = (p.n_rows_{i} + OUTPUTS - 1u) / OUTPUTS;
    if (i < n_{i}) {{
        part_{i}(me, i, row, rows);
        return;
    }}
    i -= n_{i};\n"
            );
        }
        all += "}\n";
    }
    all
}

/// The same with a number behind each name that it declares, and those above.
fn numbered(source: &str, number: usize) -> String {
    let mut names: Vec<&str> = source.lines().filter_map(declared).collect();
    names.extend(NUMBERED);
    let mut out = String::with_capacity(2 * source.len());
    let mut rest = source;
    while !rest.is_empty() {
        let (word, behind) = word(rest);
        out += word;
        if names.contains(&word) {
            out += &format!("_{number}");
        }
        let between = behind.find(is_of_word).unwrap_or(behind.len());
        out += &behind[..between];
        rest = &behind[between..];
    }
    out
}

/// What a line declares, if it does.
fn declared(line: &str) -> Option<&str> {
    let buffer = || line.split_once("var<storage")?.1.split_once("> ");
    let rest =
        line.strip_prefix("fn ").or_else(|| line.strip_prefix("const ")).or_else(|| Some(buffer()?.1))?;
    Some(word(rest).0)
}

/// The word that a text begins with, if it does, and what is behind it.
fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_of_word(c)).unwrap_or(text.len()))
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_declared_get_numbers() {
        let source = "const MOST = 2u;\n@group(0) @binding(OUT) var<storage, read_write> out: array<f32>;\n\
            fn put(o: u32, most: u32) {\n    out[o * p.n_rows] = f32(MOST) + x[o]; // put\n}";
        let expected = "const MOST_3 = 2u;\n@group(0) @binding(OUT_3) var<storage, read_write> out_3: array<f32>;\n\
            fn put_3(o: u32, most: u32) {\n    out_3[o * p.n_rows_3] = f32(MOST_3) + x[o]; // put_3\n}";
        assert_eq!(numbered(source, 3), expected);
    }
}
