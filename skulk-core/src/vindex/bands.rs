//! Which layers are thought to hold syntax, knowledge and output? As LARQL has it for families that it knows.

use super::VindexBands;

/// Layers below which another division than one band is not worth while.
const LEAST_LAYERS: usize = 8;

/// LARQL's name of a family, layers of the model, the first that holds knowledge, and the first that forms output.
const KNOWN: &[(&str, usize, usize, usize)] = &[
    ("gemma2", 26, 11, 21),
    ("gemma2", 42, 17, 35),
    ("gemma2", 46, 19, 38),
    ("gemma3", 34, 14, 28),
    ("gemma3", 42, 17, 35),
    ("gemma4", 30, 12, 24),
    ("gemma4", 35, 14, 28),
    ("gemma4", 36, 15, 29),
    ("gemma4", 60, 24, 48),
    ("gpt2", 12, 5, 10),
    ("gpt2", 24, 10, 20),
    ("gpt2", 36, 15, 29),
    ("gpt2", 48, 20, 39),
    ("llama", 32, 13, 26),
    ("llama", 40, 16, 33),
    ("llama", 80, 32, 64),
    ("mistral", 32, 13, 26),
    ("mixtral", 32, 13, 26),
    ("phi", 32, 13, 26),
    ("phi", 40, 16, 33),
    ("qwen2", 28, 11, 23),
    ("qwen2", 32, 13, 26),
    ("qwen2", 40, 16, 33),
    ("qwen2", 64, 26, 52),
    ("qwen2", 80, 32, 64),
];

impl VindexBands {
    /// The bands that LARQL gives a model of this family, by its name there, and with so many layers: of unknown ones
    /// two fifths, two fifths and a fifth; `None` for fewer than eight layers.
    pub fn of(family: &str, num_layers: usize) -> Option<Self> {
        let known = KNOWN.iter().find(|(name, layers, ..)| *name == family && *layers == num_layers);
        let (knowledge, output) = match known {
            Some(&(_, _, knowledge, output)) => (knowledge, output),
            None if num_layers < LEAST_LAYERS => return None,
            None => (num_layers.checked_mul(2)? / 5, num_layers.checked_mul(4)? / 5),
        };
        Some(Self {
            syntax: [0, knowledge - 1],
            knowledge: [knowledge, output - 1],
            output: [output, num_layers - 1],
        })
    }

    /// One band of all layers, three times.
    pub(crate) fn whole(num_layers: usize) -> Self {
        let all = [0, num_layers.saturating_sub(1)];
        Self { syntax: all, knowledge: all, output: all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_all_layers_once() {
        let known = KNOWN.iter().map(|&(family, layers, ..)| (family, layers));
        for (family, layers) in known.chain((8..200).map(|layers| ("other", layers))) {
            let bands = VindexBands::of(family, layers).unwrap();
            assert_eq!(bands.syntax[0], 0);
            assert_eq!(bands.syntax[1] + 1, bands.knowledge[0]);
            assert_eq!(bands.knowledge[1] + 1, bands.output[0]);
            assert_eq!(bands.output[1] + 1, layers);
            for [first, last] in [bands.syntax, bands.knowledge, bands.output] {
                assert!(first <= last, "{family} {layers}");
            }
        }
        assert_eq!(VindexBands::of("gemma3", 34).unwrap().knowledge, [14, 27]);
        assert_eq!(VindexBands::of("llama", 7), None);
        assert_eq!(VindexBands::of("other", usize::MAX), None);
    }

    /// As LARQL 0.1 writes them.
    #[test]
    fn bands_are_larqls() {
        let of = |family, layers| VindexBands::of(family, layers).map(|b| [b.syntax, b.knowledge, b.output]);
        assert_eq!(of("gemma3", 34), Some([[0, 13], [14, 27], [28, 33]]));
        assert_eq!(of("llama", 80), Some([[0, 31], [32, 63], [64, 79]]));
        assert_eq!(of("gemma3", 18), Some([[0, 6], [7, 13], [14, 17]]));
        assert_eq!(of("qwen3", 32), Some([[0, 11], [12, 24], [25, 31]]));
        assert_eq!(of("llama", 8), Some([[0, 2], [3, 5], [6, 7]]));
        assert_eq!(of("llama", 7), None);
        assert_eq!(of("gemma3", 0), None);
    }
}
