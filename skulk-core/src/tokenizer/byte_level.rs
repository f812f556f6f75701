//! What is a byte-level BPE vocabulary with merges, as GPT-2 introduced it?

use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::gguf::{Built, Parts, invalid};
use super::pieces::Pieces;
use super::pre;
use crate::error::Result;

pub(super) fn build(parts: &Parts) -> Result<Built> {
    // llama.cpp takes a file that does not say for an old one of its default kind.
    let name = parts.pre.unwrap_or("default");
    let rules = pre::rules(name).ok_or_else(|| {
        invalid("tokenizer.ggml.pre", "the way this tokenizer splits words is not known")
            .with("found", name)
            .with("expected", pre::names().join(", "))
            .with_hint("convert the model with one of the known names if it splits alike")
    })?;
    let (vocab, duplicates) = parts.vocab();
    let merges = merges(parts, &vocab)?;
    let broken = |e| invalid("tokenizer.ggml.merges", "the vocabulary is inconsistent").with_source(e);
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(rules.whole_words)
        .build()
        .map_err(broken)?;
    let mut inner = Tokenizer::new(bpe);
    let mut splits: Vec<PreTokenizerWrapper> = Vec::new();
    for regex in rules.splits {
        let pattern = SplitPattern::Regex((*regex).to_owned());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        splits.push(split.map_err(broken)?.into());
    }
    splits.push(ByteLevel::new(false, false, false).into());
    inner.with_pre_tokenizer(Some(Sequence::new(splits)));
    inner.add_tokens(parts.added()).map_err(broken)?;
    Ok(Built { inner, pieces: Pieces::byte_level(), duplicates, add_bos: rules.add_bos })
}

/// The merges in order of rank: pairs separated by a space, which the byte alphabet spells `Ġ`.
fn merges(parts: &Parts, vocab: &Vocab) -> Result<Merges> {
    const FIELD: &str = "tokenizer.ggml.merges";
    let Some(lines) = &parts.merges else {
        return Err(invalid(FIELD, "expected the merges of a byte-level vocabulary, found none")
            .with_hint("the file carries half a tokenizer: convert the model again"));
    };
    let mut seen = HashSet::new();
    let mut merges = Merges::with_capacity(lines.len());
    for (rank, line) in lines.iter().enumerate() {
        let Some((left, right)) = line.split_once(' ') else {
            return Err(invalid(FIELD, "expected two tokens separated by a space")
                .with("index", rank)
                .with("found", line)
                .with_hint("the file's metadata is damaged: fetch it again"));
        };
        // As in llama.cpp, the first of equal pairs counts, and a merge of or into something
        // that is no token has no effect on text that the vocabulary covers.
        let known = vocab.get(left).zip(vocab.get(right));
        if let Some(pair) = known
            && vocab.contains_key(&format!("{left}{right}"))
            && seen.insert(pair)
        {
            merges.push((left.to_owned(), right.to_owned()));
        }
    }
    Ok(merges)
}
