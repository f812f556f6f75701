//! What does a model expect behind each token of a text? What transformers says, whatever the text's chunks are.

use skulk::{CancelToken, EngineOptions, ErrorKind, KvType, Model, Precision, TokenId};

use crate::fixtures::json;
use crate::generate::common::{NAMES, OPENING, model, one_thread, path, reference_prompt, with_engine};

fn logits(model: &Model, tokens: Vec<TokenId>) -> Vec<f32> {
    model.logits(tokens, &CancelToken::new()).unwrap()
}

/// The tolerance is that of the references' own test: what sums in another order differ by.
#[test]
fn they_are_the_reference_s() {
    for name in NAMES {
        let engine = EngineOptions::default().threads(1).precision(Precision::Exact);
        let model = Model::open(path(name), &with_engine(engine).kv(KvType::F32)).unwrap();
        let width = model.arch().vocab_size;
        let reference = json(&path(name).join("reference.json"));
        for (i, prompt) in reference["prompts"].as_array().unwrap().iter().enumerate() {
            let found = logits(&model, reference_prompt(name, i));
            for row in prompt["logits"].as_array().unwrap() {
                let at = usize::try_from(row["pos"].as_u64().unwrap()).unwrap();
                let found = &found[at * width..][..width];
                for pair in row["top20"].as_array().unwrap() {
                    let id = usize::try_from(pair[0].as_u64().unwrap()).unwrap();
                    let (expected, found) = (pair[1].as_f64().unwrap(), f64::from(found[id]));
                    assert!(
                        (expected - found).abs() < 1e-3,
                        "{name}, position {at}, token {id}: {expected} {found}"
                    );
                }
            }
        }
    }
}

#[test]
fn chunks_do_not_change_a_bit() {
    let text = reference_prompt("llama", 2);
    assert!(text.len() > 16, "a text of several parts");
    let whole = logits(&model("llama"), text.clone());
    for chunk in [1, 7, 16] {
        let chunked = Model::open(path("llama"), &one_thread().prefill_chunk(chunk)).unwrap();
        assert_eq!(logits(&chunked, text.clone()), whole, "chunks of {chunk}");
    }
    // A text's first tokens do not depend on its others.
    assert_eq!(logits(&model("llama"), text[..5].to_vec()), whole[..5 * 2048]);
}

#[test]
fn impossible_texts_are_refused() {
    let model = Model::open(path("llama"), &one_thread().context(20)).unwrap();
    let cancel = CancelToken::new();
    let kind = |text: Vec<TokenId>| model.logits(text, &cancel).unwrap_err().kind();
    assert_eq!(kind(vec![]), ErrorKind::InvalidArgument);
    assert_eq!(kind(vec![TokenId(1 << 20)]), ErrorKind::InvalidArgument);
    assert_eq!(kind(vec![TokenId(5); 21]), ErrorKind::ContextOverflow);
    assert!(model.logits(vec![TokenId(5); 20], &cancel).is_ok());
    cancel.cancel();
    assert_eq!(model.logits(OPENING, &cancel).unwrap_err().kind(), ErrorKind::Cancelled);
}
