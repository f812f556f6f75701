//! Which layers deal with syntax, knowledge and output? LARQL's table.

use crate::vindex::VindexBands;

/// Family, number of layers, first layer of the knowledge band and first of the output band.
type Row = (&'static str, usize, usize, usize);

/// What LARQL 0.1 has for the families that this library runs. Other families and depths are split 2 : 2 : 1.
const TABLE: &[Row] = &[
    ("gemma3", 34, 14, 28),
    ("gemma3", 42, 17, 35),
    ("llama", 32, 13, 26),
    ("llama", 40, 16, 33),
    ("llama", 80, 32, 64),
    ("mixtral", 32, 13, 26),
];
/// Models of fewer layers have no bands, unless the table has them.
const LEAST: usize = 8;

/// The bands of a family's model of `layers` layers; `None` where it has too few.
pub(super) fn bands(family: &str, layers: usize) -> Option<VindexBands> {
    let row = TABLE.iter().find(|row| (row.0, row.1) == (family, layers));
    let (knowledge, output) = match row {
        Some(&(_, _, knowledge, output)) => (knowledge, output),
        None if layers >= LEAST => (layers * 2 / 5, layers * 4 / 5),
        None => return None,
    };
    Some(VindexBands {
        syntax: [0, knowledge - 1],
        knowledge: [knowledge, output - 1],
        output: [output, layers - 1],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As LARQL 0.1 writes them.
    #[test]
    fn bands_are_larqls() {
        let of = |family, layers| bands(family, layers).map(|b| [b.syntax, b.knowledge, b.output]);
        assert_eq!(of("gemma3", 34), Some([[0, 13], [14, 27], [28, 33]]));
        assert_eq!(of("llama", 80), Some([[0, 31], [32, 63], [64, 79]]));
        assert_eq!(of("gemma3", 18), Some([[0, 6], [7, 13], [14, 17]]));
        assert_eq!(of("qwen3", 32), Some([[0, 11], [12, 24], [25, 31]]));
        assert_eq!(of("llama", 8), Some([[0, 2], [3, 5], [6, 7]]));
        assert_eq!(of("llama", 7), None);
        assert_eq!(of("gemma3", 0), None);
    }
}
