//! Which tokens are markup for the model, whatever their file says?
//!
//! Converters sometimes take control tokens for ordinary ones. llama.cpp (`src/llama-vocab.cpp`) knows such tokens by
//! their texts.

use hashbrown::HashSet;

use super::parts::{Kind, Parts};
use crate::ids::TokenId;

/// Control tokens that end a generation.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Those that stand between files, and so end one, too.
const BETWEEN_FILES: &[&str] = &[
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Those around a gap that is to be filled.
const GAPS: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];

/// Corrects the kinds of tokens that are known by their texts.
pub(super) fn correct(parts: &mut Parts) {
    if parts.kinds.is_empty() {
        parts.kinds.resize(parts.tokens.len(), Kind::Other);
    }
    let gemma4 = has_plain_end(parts);
    // Vocabularies have hundreds of thousands of tokens.
    let known: HashSet<&str> = [ENDS, BETWEEN_FILES, GAPS].concat().into_iter().collect();
    for (token, kind) in parts.tokens.iter().zip(&mut parts.kinds) {
        if gemma4 && *token == "</s>" {
            *kind = Kind::Other;
        } else if known.contains(token) {
            *kind = Kind::Control;
        }
    }
}

/// Gemma 4's and PLaMo's vocabularies have an ordinary `</s>`.
fn has_plain_end(parts: &Parts) -> bool {
    parts.tokens.iter().any(|token| ["<|tool_response>", "<|plamo:eos|>"].contains(token))
}

/// The tokens that end a generation by their text.
pub(super) fn ends(parts: &Parts) -> Vec<TokenId> {
    let control = (0_u32..).zip(parts.tokens.iter().zip(&parts.kinds));
    let ending = |token: &str| ENDS.contains(&token) || BETWEEN_FILES.contains(&token);
    let found: Vec<(u32, &str)> = control
        .filter(|(_, (token, kind))| **kind == Kind::Control && ending(token))
        .map(|(id, (token, _))| (id, *token))
        .collect();
    let has = |text: &str| found.iter().any(|(_, token)| *token == text);
    // In the harmony format `<|end|>` only ends a message, as llama.cpp tells by the tokens beside it.
    let calls = has("<|call|>") || has("<|calls|>");
    let harmony = calls && (has("<|return|>") || has("<|flush|>"));
    let plain_end = has_plain_end(parts);
    let kept = found.iter().filter(|(_, token)| match *token {
        "<|end|>" => !harmony,
        "</s>" => !plain_end,
        _ => true,
    });
    kept.map(|(id, _)| TokenId(*id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_corrected_by_text() {
        let tokens = vec!["a", "<|im_end|>", "<｜fim▁hole｜>", "</s>", "<|start|>"];
        let kinds = vec![Kind::Other, Kind::UserDefined, Kind::UserDefined, Kind::Other, Kind::Control];
        let mut parts = Parts { tokens, kinds, ..Parts::default() };
        correct(&mut parts);
        let (text, mark) = (Kind::Other, Kind::Control);
        assert_eq!(parts.kinds, [text, mark, mark, mark, mark]);
        assert_eq!(ends(&parts), [TokenId(1), TokenId(3)]);
        parts.tokens[0] = "<|tool_response>";
        correct(&mut parts);
        assert_eq!(parts.kinds, [mark, mark, mark, text, mark]);
        parts.kinds.clear();
        correct(&mut parts);
        assert_eq!(parts.kinds, [mark, mark, mark, text, text]);
    }
}
