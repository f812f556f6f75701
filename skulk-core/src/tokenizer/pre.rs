//! How does a byte-level tokenizer cut text into words before it merges?
//!
//! The names are llama.cpp's (`tokenizer.ggml.pre`), the expressions those of the models' own
//! `tokenizer.json`. Each cuts what the one before it left, matches and gaps alike.

/// The rules that go with a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Regular expressions, applied one after the other.
    pub(super) splits: &'static [&'static str],
    /// Whether a word that is a token is taken whole, whatever the merges say.
    pub(super) whole_words: bool,
    /// Whether encoding begins with BOS unless the file says.
    pub(super) add_bos: bool,
}

/// The rules called `name`.
pub(super) fn rules(name: &str) -> Option<Rules> {
    let (_, splits) = KNOWN.iter().find(|(names, _)| names.contains(&name))?;
    Some(Rules { splits, whole_words: WHOLE_WORDS.contains(&name), add_bos: ADD_BOS.contains(&name) })
}

/// Every known name.
pub(super) fn names() -> Vec<&'static str> {
    KNOWN.iter().flat_map(|(names, _)| names.iter().copied()).collect()
}

const ADD_BOS: &[&str] =
    &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken"];
const WHOLE_WORDS: &[&str] = ADD_BOS;

const GPT2: &str = r#"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"#;
const LLAMA3: &str = r#"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const QWEN2: &str = r#"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const QWEN35: &str = r#"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const TEKKEN: &str = r#"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const GPT4O: &str = r#"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// Cased letters, in the ranges that DeepSeek spells out.
const DEEPSEEK_LETTERS: &str = concat!(
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
);
const BAILING: &str = r#"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"#;
const SEED: &str = r#"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"#;
const PORO: &str = r#" ?[^(\s|.,!?…。，、।۔،)]+"#;
const CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";

type Family = (&'static [&'static str], &'static [&'static str]);

const KNOWN: &[Family] = &[
    (&["default"], &[r#"[\p{P}\$\+<=>\^~\|]+"#, GPT2, r#"\p{N}+"#, r#"[0-9][0-9][0-9]"#]),
    (
        &[
            "gpt-2",
            "phi-2",
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
            "dbrx",
            "smaug-bpe",
            "chatglm-bpe",
            "glm4",
        ],
        &[LLAMA3],
    ),
    (
        &["qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"],
        &[QWEN2],
    ),
    (&["qwen35"], &[QWEN35]),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[r#"\p{N}"#, GPT2],
    ),
    (&["falcon"], &[r#"[\p{P}\$\+<=>\^~\|`]+"#, GPT2, r#"[0-9][0-9][0-9]"#]),
    (
        &["deepseek-llm"],
        &[
            r#"[\r\n]"#,
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
            r#"\s+$"#,
            CJK,
            r#"\p{N}+"#,
        ],
    ),
    (&["deepseek-coder"], &[r#"[\r\n]"#, r#"\s?\p{L}+"#, r#"\s?\p{P}+"#, CJK, r#"\p{N}"#]),
    (
        &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        &[r#"\p{N}{1,3}"#, r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+", DEEPSEEK3],
    ),
    (&["tekken"], &[TEKKEN]),
    (&["gpt-4o", "llama4", "kanana2", "minimax-m2"], &[GPT4O]),
    (&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    (&["seed-coder"], &[SEED]),
    (&["bloom", "poro-chat", "gpt3-finnish"], &[PORO]),
    (&["viking"], &[PORO, r#"\p{N}"#]),
];

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = PreTokenizedString::from(text);
        for regex in rules(name).unwrap().splits {
            let pattern = SplitPattern::Regex((*regex).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            split.unwrap().pre_tokenize(&mut words).unwrap();
        }
        let splits = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    #[test]
    fn names_are_unique_and_every_expression_compiles() {
        let mut names = names();
        for name in &names {
            assert_eq!(words(name, "It's 1234 Wörter,\n\n ja!  ").concat(), "It's 1234 Wörter,\n\n ja!  ");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(ADD_BOS.iter().all(|name| rules(name).is_some()));
    }

    #[test]
    fn families_differ_where_they_should() {
        let text = "I'LL pay 12345\n";
        assert_eq!(words("gpt-2", text), ["I", "'", "LL", " pay", " 12345", "\n"]);
        assert_eq!(words("llama-bpe", text), ["I", "'LL", " pay", " ", "123", "45", "\n"]);
        assert_eq!(words("qwen2", text), ["I", "'LL", " pay", " ", "1", "2", "3", "4", "5", "\n"]);
        assert_eq!(words("smollm", "a 12"), ["a", " ", "1", "2"]);
        assert_eq!(words("deepseek-v3", "x1234漢字 y"), ["x", "123", "4", "漢字", " y"]);
        assert_eq!(words("tekken", "fooBar"), ["foo", "Bar"]);
        assert_eq!(words("gpt-4o", "Tom's"), ["Tom's"]);
        assert!(rules("no-such").is_none());
    }
}
