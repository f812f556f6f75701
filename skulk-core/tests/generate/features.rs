//! Does a model that computes only the best features of its feed-forward blocks do so, and does it say how far off that
//! is?

use skulk::{CancelToken, Divergence, EngineOptions, ErrorKind, KvType, Model, TokenId};

use crate::generate::common::{fresh, greedy, path, reference_prompt, threads, with_engine};
use crate::generate::rewritten::{Tensor, rewritten};

fn sparse(name: &str, k: Option<usize>, chunk: usize) -> Model {
    let mut engine = EngineOptions::default().threads(2);
    engine.ffn_top_features = k;
    Model::open(path(name), &with_engine(engine).prefill_chunk(chunk)).unwrap()
}

fn divergence(model: &Model, exact: &Model, tokens: &[TokenId]) -> Divergence {
    model.divergence(exact, tokens.to_vec(), &CancelToken::new()).unwrap()
}

fn text(name: &str) -> Vec<TokenId> {
    (0..3).flat_map(|prompt| reference_prompt(name, prompt)).take(60).collect()
}

#[test]
fn fewer_features_are_further_off() {
    for (name, width) in [("stories260K", 172), ("llama", 512)] {
        let (exact, tokens) = (sparse(name, None, 32), text(name));
        let found = [width / 16, width / 4, width * 3 / 4, width - 1]
            .map(|k| divergence(&sparse(name, Some(k), 32), &exact, &tokens));
        for pair in found.windows(2) {
            assert!(pair[0].mean_kl > pair[1].mean_kl && pair[0].max_kl > pair[1].max_kl, "{name}: {pair:?}");
            assert!(pair[0].top1_agreement <= pair[1].top1_agreement, "{name}: {pair:?}");
        }
        assert!(found.iter().all(|it| it.tokens == tokens.len() && it.max_kl >= it.mean_kl));
        assert!(found[0].top1_agreement < 1.0 && found[3].mean_kl > 0.0 && found[3].top1_agreement > 0.9);
        // All features are the model itself.
        for k in [width, width + 1, usize::MAX] {
            let all = sparse(name, Some(k), 32);
            let found = divergence(&all, &exact, &tokens);
            assert_eq!((found.mean_kl, found.max_kl, found.top1_agreement), (0.0, 0.0, 1.0));
            let options = greedy(6).logprobs(5);
            let [a, b] = [&all, &exact].map(|model| {
                let events = model.generate(tokens.clone(), options.clone()).unwrap();
                events.map(|event| event.unwrap().token).collect::<Vec<_>>()
            });
            assert_eq!(a, b);
        }
    }
}

/// Each row chooses for itself: chunks of a prompt are what its tokens are one by one.
#[test]
fn a_row_s_features_do_not_depend_on_others() {
    for (name, k) in [("stories260K", 20), ("llama", 100), ("gemma3", 64)] {
        let tokens = text(name);
        let expected = sparse(name, Some(k), 1);
        for chunk in [2, 5, 64] {
            let found = divergence(&sparse(name, Some(k), chunk), &expected, &tokens);
            assert_eq!((found.max_kl, found.top1_agreement), (0.0, 1.0), "{name}, chunks of {chunk}");
        }
    }
}

/// A checkpoint that has down projections by features too gives the same, up to rounding.
#[test]
fn rows_of_down_are_its_columns() {
    let folder = rewritten("stories260K", |mut tensors, _| {
        let by_feature = tensors.iter().filter(|it| it.name.ends_with("mlp.down_proj.weight")).map(|down| {
            let [hidden, width] = down.shape[..] else { panic!("no matrix") };
            let size = down.bytes.len() / hidden / width;
            let element = |i: usize| down.bytes[i * size..][..size].to_vec();
            let at = (0..width).flat_map(|feature| (0..hidden).map(move |row| row * width + feature));
            Tensor {
                name: down.name.replace("down_proj", "down_features"),
                dtype: down.dtype,
                shape: vec![width, hidden],
                bytes: at.flat_map(element).collect(),
            }
        });
        let by_feature: Vec<_> = by_feature.collect();
        assert_eq!(by_feature.len(), 5);
        tensors.extend(by_feature);
        tensors
    });
    let tokens = text("stories260K");
    for k in [1, 20, 171] {
        // Keys and values of half precision would make more of a rounding than it is.
        let options = with_engine(EngineOptions::default().threads(2).ffn_top_features(k)).kv(KvType::F32);
        let [found, expected] =
            [folder.path(), &*path("stories260K")].map(|path| Model::open(path, &options).unwrap());
        let rounding = divergence(&found, &expected, &tokens);
        // Logits differ by some roundings of numbers up to 20, 1e-5, divergences by the square of that.
        assert!(rounding.max_kl < 1e-9 && rounding.top1_agreement == 1.0, "{k}: {rounding:?}");
        assert_eq!(fresh(&found, tokens.clone(), &greedy(8)).ids.len(), 8);
    }
    // It is not what the whole block is computed from.
    let whole = Model::open(folder.path(), &threads(2)).unwrap();
    assert_eq!(divergence(&whole, &sparse("stories260K", None, 64), &tokens).max_kl, 0.0);
}

#[test]
fn what_cannot_be_sparse_says_so() {
    for (name, k) in [("llama", 0), ("mixtral", 10)] {
        let options = with_engine(EngineOptions::default().threads(1).ffn_top_features(k));
        let error = Model::open(path(name), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.context().iter().any(|(key, value)| *key == "field" && value == "ffn_top_features"));
        assert!(error.hint().is_some());
    }
}

#[test]
fn divergence_is_of_comparable_models() {
    let (stories, llama) = (sparse("stories260K", None, 32), sparse("llama", None, 32));
    let never = CancelToken::new();
    let error = stories.divergence(&llama, "Once", &never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("512 and 2048"), "{error}");
    assert_eq!(stories.divergence(&stories, "", &never).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let long = vec![TokenId(5); 600];
    assert_eq!(stories.divergence(&stories, long, &never).unwrap_err().kind(), ErrorKind::ContextOverflow);
    let cancelled = CancelToken::new();
    cancelled.cancel();
    assert_eq!(stories.divergence(&stories, "Once", &cancelled).unwrap_err().kind(), ErrorKind::Cancelled);
    let itself = stories.divergence(&stories, "Once upon a time", &never).unwrap();
    assert_eq!((itself.mean_kl, itself.max_kl, itself.top1_agreement), (0.0, 0.0, 1.0));
    assert!(itself.tokens >= 5);
}
