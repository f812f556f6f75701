//! Are draws reproducible, however the model is run?

use skulk::{Model, Sampling};

use crate::generate::common::{self, NAMES, OPENING, fresh, greedy, one_thread, path};

#[test]
fn a_seed_gives_the_same_tokens_over_threads_and_stages() {
    for name in NAMES {
        let options = |seed| greedy(24).sampling(Sampling::default().temperature(1.0).top_p(0.98).seed(seed));
        let alone = Model::open(path(name), &one_thread()).unwrap();
        let expected = fresh(&alone, OPENING, &options(7));
        assert_ne!(expected.ids, fresh(&alone, OPENING, &options(8)).ids, "{name}");
        for threads in [1, 2] {
            for stages in [1, 2, 3] {
                let load = common::threads(threads).stages(stages);
                let model = Model::open(path(name), &load).unwrap();
                assert_eq!(model.stages().len(), stages);
                let found = fresh(&model, OPENING, &options(7));
                assert_eq!(found.ids, expected.ids, "{name}: {threads} threads, {stages} stages");
                assert_eq!(found.text, expected.text);
            }
        }
    }
}

#[test]
fn forbidden_tokens_do_not_come() {
    let model = Model::open(path("stories260K"), &one_thread()).unwrap();
    let first = fresh(&model, OPENING, &greedy(1)).ids[0];
    let forbidden = Sampling::default().logit_bias(vec![(first, f32::NEG_INFINITY)]);
    assert!(!fresh(&model, OPENING, &greedy(30).sampling(forbidden)).ids.contains(&first));
}
