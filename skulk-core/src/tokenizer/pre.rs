//! How does a byte-level tokenizer cut text into words before it merges?
//!
//! The names are llama.cpp's (`tokenizer.ggml.pre`), and so is what they mean where it differs from the models' own
//! `tokenizer.json`. Each cut works on what the one before it left, matches and gaps alike.

use self::Split::{Find, Thirds, Triples};

/// One cut of text into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Split {
    /// Matches of a regular expression are words. Spaces behind the last alternative are as [`SPACES`] says, or
    /// [`SPACES_GPT2`] or [`SPACES_JAIS2`].
    Find(&'static str),
    /// Numbers in threes from the right. What stands in front of a number goes with its first group.
    Thirds,
    /// ASCII digits in threes from the right, where there are three or more.
    Triples,
}

impl Split {
    /// The same as a regular expression for backtracking engines; of [`Self::Thirds`] what models state.
    pub(super) fn pattern(self) -> &'static str {
        match self {
            Self::Find(pattern) => pattern,
            Self::Thirds => r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            Self::Triples => r"(?=([0-9]{3})+(?![0-9]))",
        }
    }
}

/// The rules that go with a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Applied one after the other.
    pub(super) splits: &'static [Split],
    /// Whether a word that is a token is taken whole, whatever the merges say.
    pub(super) whole_words: bool,
    /// Whether encoding begins with BOS unless the file says.
    pub(super) add_bos: bool,
    pub(super) spelling: Spelling,
}

/// How a vocabulary spells text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// In GPT-2's byte alphabet.
    Bytes,
    /// As it is, with tokens `<0xNN>` for the bytes of characters that it lacks.
    Text {
        /// U+2581 stands for a space.
        escaped: bool,
        /// A run of newlines that is a token is taken whole.
        whole_lines: bool,
    },
}

/// The rules called `name`.
pub(super) fn rules(name: &str) -> Option<Rules> {
    let (_, splits) = KNOWN.iter().find(|(names, _)| names.contains(&name))?;
    let add_bos = ADD_BOS.contains(&name);
    Some(Rules {
        splits,
        whole_words: WHOLE_WORDS.contains(&name),
        add_bos,
        spelling: match name {
            "gemma4" | "granite-embed-multi-311m" => Spelling::Text { escaped: true, whole_lines: true },
            "sarvam-moe" => Spelling::Text { escaped: true, whole_lines: false },
            "whitespace" => Spelling::Text { escaped: false, whole_lines: false },
            _ => Spelling::Bytes,
        },
    })
}

/// Every known name.
pub(super) fn names() -> Vec<&'static str> {
    KNOWN.iter().flat_map(|(names, _)| names.iter().copied()).collect()
}

/// In front of a word, all spaces but the last stay together; at the end, all.
pub(super) const SPACES: &str = r"|\s+(?!\S)|\s+";
/// The same.
pub(super) const SPACES_GPT2: &str = r"|\s+(?!\S)";
/// The same in pieces of powers of two.
pub(super) const SPACES_JAIS2: &str = r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";

const ADD_BOS: &[&str] = &[
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "tekken",
    "chameleon",
    "gemma4",
    "granite-embed-multi-311m",
];
const WHOLE_WORDS: &[&str] = &[
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "tekken",
    "minicpm5",
    "youtu",
    "glm4",
    "glm5",
    "granite-embed-multi-97m",
];

const GPT2: Split = Find(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)");
const LLAMA3: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const QWEN2: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const QWEN35: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const JAIS2: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
);
const MINICPM5: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const UFAKZEKA: Split =
    Find(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");
/// In this and the following, only letters of ASCII have a case.
const TEKKEN: Split = Find(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const GPT4O: Split = Find(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const GRANITE_97M: Split = Find(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^a-z]]*[\p{L}\p{M}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^a-z]]+[\p{L}\p{M}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// In this and the following, no letter has a case.
const TINY_AYA: Split = Find(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const YOUTU: Split = Find(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const YOUTU_SCRIPTS: Split = Find(
    r"[\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+",
);
const KIMI: Split = Find(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2EBEF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const DEEPSEEK3: Split = Find(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
);
const SPARK: Split = Find(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##,
);
const AFMOE_SCRIPTS: Split = Find(
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+",
);
/// Cased letters, in the ranges that DeepSeek spells out.
const DEEPSEEK_LETTERS: Split = Find(concat!(
    r"\s?[\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}",
    r"\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}",
    r"\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}",
    r"\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}",
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}",
    r"\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}",
    r"\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}",
    r"\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}",
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}",
    r"\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}",
    r"\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}",
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}",
    r"\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}",
    r"\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}",
    r"\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}",
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}",
    r"\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+",
));
const BAILING: Split = Find(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
);
const EXAONE_MOE: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
);
const SEED: Split = Find(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const PORO: Split = Find(r" ?[^(\s|.,!?…。，、।۔،)]+");
/// But for the spaces among them.
const CJK: Split = Find(r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}&&\S]+");
const HAN_AND_KANA: Split = Find(r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+");
const LINES: Split = Find(r"[^\n]+|\n+");
const NEWLINE: Split = Find(r"[\r\n]");
const NUMBER: Split = Find(r"\p{N}");
const NUMBERS: Split = Find(r"\p{N}+");
const NUMBERS_OF_3: Split = Find(r"\p{N}{1,3}");
const DIGITS_OF_3: Split = Find(r"[0-9][0-9][0-9]");

type Family = (&'static [&'static str], &'static [Split]);

const KNOWN: &[Family] = &[
    (&["default"], &[Find(r"[\p{P}\$\+<=>\^~\|]+"), GPT2, NUMBERS, DIGITS_OF_3]),
    (
        &[
            "gpt-2",
            "phi-2",
            "jina-v1-en",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "modern-bert",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[GPT2],
    ),
    (
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
            "dbrx",
            "smaug-bpe",
            "chatglm-bpe",
            "glm4",
            "glm5",
        ],
        &[LLAMA3],
    ),
    (&["jais-2"], &[JAIS2]),
    (&["minicpm5"], &[NUMBERS_OF_3, MINICPM5]),
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[QWEN2],
    ),
    (&["qwen35"], &[QWEN35]),
    (&["ufakzeka"], &[UFAKZEKA]),
    (&["laguna"], &[LINES, QWEN2]),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[NUMBER, GPT2],
    ),
    (&["falcon"], &[Find(r"[\p{P}\$\+<=>\^~\|`]+"), GPT2, DIGITS_OF_3]),
    (
        &["chameleon"],
        &[
            Find(r"<sentinel:[0-9]+>"),
            Find(r"IMGIMG[A-I]{1,4}Z"),
            Find(r"[\t\n]|    |  "),
            NUMBER,
            Find(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT2,
        ],
    ),
    (
        &["deepseek-llm"],
        &[
            NEWLINE,
            DEEPSEEK_LETTERS,
            Find(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+"),
            Find(r"\s+$"),
            CJK,
            NUMBERS,
        ],
    ),
    (&["deepseek-coder"], &[NEWLINE, Find(r"\s?\p{L}+"), Find(r"\s?\p{P}+"), CJK, NUMBER]),
    (&["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"], &[NUMBERS_OF_3, HAN_AND_KANA, DEEPSEEK3]),
    (&["spark2_5"], &[NUMBERS_OF_3, HAN_AND_KANA, SPARK, NUMBER]),
    (&["kimi-k2"], &[KIMI]),
    (&["youtu"], &[YOUTU_SCRIPTS, YOUTU]),
    (&["tekken"], &[TEKKEN]),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    (&["granite-embed-multi-97m"], &[GRANITE_97M]),
    (&["tiny_aya", "cohere2moe"], &[Thirds, TINY_AYA]),
    (&["afmoe"], &[Thirds, AFMOE_SCRIPTS, DEEPSEEK3]),
    (&["superbpe"], &[NUMBERS, Triples]),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    (&["exaone-moe"], &[EXAONE_MOE]),
    (&["seed-coder"], &[SEED]),
    (&["bloom", "poro-chat", "gpt3-finnish"], &[PORO]),
    (&["viking"], &[PORO, NUMBER]),
    (&["gemma4", "granite-embed-multi-311m", "sarvam-moe"], &[LINES]),
    (&["whitespace"], &[Find(r"\S+")]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names = names();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(ADD_BOS.iter().chain(WHOLE_WORDS).all(|name| rules(name).is_some()));
        assert!(rules("no-such").is_none());
    }
}
