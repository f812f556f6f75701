//! Does every session generate what it generates alone, whatever else runs? Random sessions on one model.

use std::collections::HashMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use skulk::{
    ByteSize, CancelToken, Error, ErrorKind, GenerateOptions, Generation, KvType, KvTypes, LoadOptions,
    Model, Prompt, Result, Retry, Sampling, Session, TokenId, WhenFull,
};

use crate::fixtures::chosen;
use crate::generate::common::{
    OPENING, fresh, greedy, long_prompt, model, one_thread, path, reference_prompt, threads,
};
use crate::generate::wrapped::Wrapped;

/// What a generation gives, in bits: tokens and their log-probabilities.
type Found = Vec<(TokenId, Option<u32>)>;

fn found(generation: &mut Generation, most: usize) -> Result<Found> {
    let events = generation.take(most);
    let tokens = events.map(|event| event.map(|event| event.token));
    tokens
        .filter_map(|token| token.transpose())
        .map(|token| token.map(|t| (t.id, t.logprob.map(f32::to_bits))))
        .collect()
}

/// One of a few ways to generate, of which some need all logits and some the largest.
fn options(kind: usize) -> GenerateOptions {
    let drawn = |seed| Sampling::default().temperature(0.8).seed(seed);
    let options = greedy([3, 20, 7, 70, 12][kind % 5]);
    match kind % 5 {
        0 => options,
        1 => options.sampling(drawn(1).top_k(9)),
        2 => options.logprobs(2),
        3 => options.priority(1),
        _ => options.sampling(drawn(4).top_p(0.9)),
    }
}

/// Prompts of which many begin alike.
fn prompt(name: &str, kind: usize) -> Vec<TokenId> {
    let text = reference_prompt(name, 2 * (kind % 2));
    let cut = [1, 30, 64, 65, 128, 200, 301][kind % 7];
    text.into_iter().cycle().take(cut).collect()
}

struct Alone {
    model: Model,
    known: HashMap<(Vec<TokenId>, usize), Found>,
}

impl Alone {
    fn of(&mut self, prompt: &[TokenId], kind: usize) -> &Found {
        let model = &self.model;
        self.known.entry((prompt.to_vec(), kind % 5)).or_insert_with(|| {
            let mut generation = model.generate(prompt.to_vec(), options(kind)).unwrap();
            found(&mut generation, usize::MAX).unwrap()
        })
    }
}

/// One random history of sessions that come, go on, fork, are cut off and dropped.
fn history(name: &str, kv: KvTypes, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut next = |n: usize| random.next_u32() as usize % n;
    let own = || LoadOptions::default().context(512).kv(kv);
    let alone = Model::open(path(name), &own().sessions(1)).unwrap();
    let mut alone = Alone { model: alone, known: HashMap::new() };
    let full = alone.model.stages()[0].kv_cache.bytes();
    let mut load =
        threads(1 + next(2)).context(512).kv(kv).sessions(1 + next(6)).prefill_chunk([16, 100, 256][next(3)]);
    load = load.stages(1 + next(2));
    if next(2) == 0 {
        // Little more than one session needs, or enough for a few.
        load = load.kv_memory(ByteSize(full * (11 + next(20) as u64) / 10));
    }
    let model = Model::open(path(name), &load).unwrap();
    let check = |seed: u64, what: &str, ok: bool| assert!(ok, "seed {seed}: {name}, {kv}: {what}");

    struct Going {
        session: Session,
        generation: Option<(Generation, Vec<TokenId>, usize, Found)>,
    }
    let mut going: Vec<Going> = Vec::new();
    for _ in 0..40 {
        let at = if going.is_empty() { 0 } else { next(going.len()) };
        match next(10) {
            0..=3 => {
                let (kind, how) = (next(14), next(5));
                let (session, prompt) = (model.session().unwrap(), prompt(name, kind));
                let generation = session.generate(prompt.clone(), options(how)).unwrap();
                going.push(Going { session, generation: Some((generation, prompt, how, Vec::new())) });
            }
            _ if going.is_empty() => {}
            4 | 5 => {
                // Reads some, or nothing: a slow reader.
                let n = next(30);
                if let Some((generation, _, _, read)) = &mut going[at].generation {
                    read.extend(found(generation, n).unwrap());
                }
            }
            6 => drop(going.swap_remove(at)),
            7 => {
                if let Some((mut generation, ..)) = going[at].generation.take() {
                    generation.close();
                }
            }
            8 => {
                if going[at].generation.is_none() && going[at].session.tokens().unwrap().len() < 400 {
                    let session = going[at].session.fork().unwrap();
                    going.push(Going { session, generation: None });
                }
            }
            _ => {
                let Going { session, generation } = &mut going[at];
                if let Some((mut generation, prompt, how, mut read)) = generation.take() {
                    read.extend(found(&mut generation, usize::MAX).unwrap());
                    check(seed, "a text differs", read == *alone.of(&prompt, how));
                }
                let tokens = session.tokens().unwrap();
                if (1..400).contains(&tokens.len()) {
                    let how = next(5);
                    let generating = session.generate(tokens.clone(), options(how)).unwrap();
                    *generation = Some((generating, tokens, how, Vec::new()));
                }
            }
        }
    }
    for Going { generation, .. } in going {
        if let Some((mut generation, prompt, how, mut read)) = generation {
            read.extend(found(&mut generation, usize::MAX).unwrap());
            check(seed, "a text differs at the end", read == *alone.of(&prompt, how));
        }
    }
    let memory = model.kv_memory();
    check(seed, "memory is over its budget", memory.budget.is_none_or(|most| memory.reserved <= most));
}

#[test]
fn sessions_generate_together_what_they_generate_alone() {
    let types = [
        KvType::BF16.into(),
        KvType::F16.into(),
        KvType::F32.into(),
        KvType::Q8_0.into(),
        KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 },
        KvType::Q4_0.into(),
    ];
    for seed in chosen(5, 0..80) {
        for name in ["gemma3", "llama", "mixtral"] {
            history(name, types[seed as usize % types.len()], seed);
        }
    }
}

#[test]
fn a_batch_gives_outputs_in_the_order_of_its_prompts() {
    let model = model("llama");
    let prompts: Vec<_> = (0..20).map(|kind| prompt("llama", kind)).collect();
    let mut all: Vec<Prompt> = prompts.iter().cloned().map(Into::into).collect();
    all.insert(7, Prompt::Tokens(Vec::new()));
    let mut outputs = model.generate_batch(all, &greedy(5));
    assert_eq!(outputs.remove(7).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for (prompt, output) in prompts.into_iter().zip(outputs) {
        assert_eq!(output.unwrap().ids, fresh(&model, prompt, &greedy(5)).ids);
    }
    let cancel = CancelToken::new();
    cancel.cancel();
    let outputs = model.generate_batch([OPENING; 3], &greedy(5).cancel(cancel));
    assert!(outputs.into_iter().all(|output| output.unwrap_err().kind() == ErrorKind::Cancelled));
    assert!(model.generate_batch(Vec::<Prompt>::new(), &greedy(5)).is_empty());
}

#[test]
fn prompts_that_begin_alike_are_computed_once() {
    for name in ["llama", "gemma3"] {
        let model = model(name);
        let text: Vec<_> = reference_prompt(name, 2).into_iter().cycle().take(300).collect();
        let first = fresh(&model, text.clone(), &greedy(4));
        assert_eq!(first.finish.usage.cached_tokens, 0);
        let mut other = text[..200].to_vec();
        other.extend(reference_prompt(name, 0));
        let second = fresh(&model, other.clone(), &greedy(4));
        assert_eq!(second.finish.usage.cached_tokens, 192, "{name}: whole pages of 64 are found");
        assert_eq!(second.ids, fresh(&self::model(name), other, &greedy(4)).ids);
        // All but the last token, whose logits are needed.
        assert_eq!(fresh(&model, text[..257].to_vec(), &greedy(1)).finish.usage.cached_tokens, 256);
        assert_eq!(fresh(&model, text[..256].to_vec(), &greedy(1)).finish.usage.cached_tokens, 192);
    }
}

#[test]
fn forks_share_what_they_have_and_go_their_own_ways() {
    let model = model("llama");
    let session = model.session().unwrap();
    session.generate(prompt("llama", 5), greedy(30)).unwrap().output().unwrap();
    let before = model.kv_memory().in_use;
    let forks: Vec<_> = (0..5).map(|_| session.fork().unwrap()).collect();
    let held = session.tokens().unwrap();
    for fork in &forks {
        assert_eq!(fork.tokens().unwrap(), held);
        let next = fork.generate(Prompt::Append(" Then".into()), greedy(6)).unwrap();
        let expected = fresh(&self::model("llama"), next.prompt_ids().to_vec(), &greedy(6));
        let output = { next }.output().unwrap();
        assert_eq!((output.ids, output.finish.usage.cached_tokens), (expected.ids, held.len() - 1));
    }
    let after = model.kv_memory().in_use;
    assert!(after.bytes() < 3 * before.bytes(), "{after} after {before}");
    drop((session, forks));
    // What they had is kept for others, and nobody's.
    while model.kv_memory().in_use.bytes() > 0 {
        std::thread::yield_now();
    }
    assert!(model.kv_memory().kept.bytes() > 0);
}

/// Memory for one session and a little more.
fn tight(when_full: WhenFull) -> Model {
    let full = Model::open(path("llama"), &one_thread().context(512)).unwrap().stages()[0].kv_cache;
    let options = one_thread().context(512).kv_memory(ByteSize(full.bytes() * 5 / 4)).when_full(when_full);
    Model::open(path("llama"), &options).unwrap()
}

#[test]
fn sessions_wait_for_memory_or_end_alone() {
    let (long, expected) = (
        |i: usize| long_prompt()[i..300 + i].to_vec(),
        |i: usize| fresh(&model("llama"), long_prompt()[i..300 + i].to_vec(), &greedy(60)).ids,
    );
    for when_full in [WhenFull::Wait, WhenFull::Evict, WhenFull::Fail] {
        let model = tight(when_full);
        let running: Vec<_> = (0..4).map(|i| model.generate(long(i), greedy(60)).unwrap()).collect();
        let ended: Vec<_> = running.into_iter().map(|mut generation| generation.output()).collect();
        let failed = ended.iter().filter(|output| output.is_err()).count();
        // One that ends leaves its pages to the others.
        assert_eq!(failed > 0, when_full != WhenFull::Wait, "{when_full:?}");
        assert!(failed < 4, "{when_full:?}");
        for (i, output) in ended.into_iter().enumerate() {
            match output {
                Ok(output) => assert_eq!(output.ids, expected(i), "{when_full:?}"),
                Err(error) => {
                    assert_eq!(
                        (error.kind(), error.retry()),
                        (ErrorKind::OutOfMemory, Retry::Now),
                        "{error}"
                    );
                    assert!(error.hint().is_some());
                }
            }
        }
    }
}

#[test]
fn what_rests_makes_room_unless_it_must_not() {
    for (when_full, fails) in [(WhenFull::Wait, false), (WhenFull::Evict, false), (WhenFull::Fail, true)] {
        let model = tight(when_full);
        let resting = model.session().unwrap();
        resting.generate(long_prompt()[..400].to_vec(), greedy(9)).unwrap().output().unwrap();
        let other = model.generate(long_prompt()[7..407].to_vec(), greedy(9)).unwrap().output();
        assert_eq!(other.is_err(), fails, "{when_full:?}");
        // It is computed again.
        let again = resting.generate(Prompt::Append(" Then".into()), greedy(9)).unwrap();
        let expected = fresh(&self::model("llama"), again.prompt_ids().to_vec(), &greedy(9)).ids;
        assert_eq!({ again }.output().unwrap().ids, expected);
    }
}

#[test]
fn budgets_that_no_session_fits_are_errors() {
    for bytes in [0, 1, 1000, 100_000] {
        let model = Model::open(path("llama"), &one_thread().kv_memory(ByteSize(bytes))).unwrap();
        let error = model.generate(long_prompt(), greedy(4)).unwrap().output().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(
            error.context().iter().any(|(key, value)| *key == "field" && value == "kv_memory"),
            "{error}"
        );
    }
    for sessions in [0, 100_000] {
        let error = Model::open(path("llama"), &one_thread().sessions(sessions)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

/// Whoever does not read holds up itself alone, also when nobody else could begin.
#[test]
fn readers_that_never_read_hold_up_nobody_else() {
    let model = Model::open(path("llama"), &one_thread().sessions(2)).unwrap();
    let unread: Vec<_> = (0..5).map(|_| model.generate(OPENING, greedy(400)).unwrap()).collect();
    let expected = fresh(&self::model("llama"), OPENING, &greedy(20)).ids;
    for _ in 0..3 {
        assert_eq!(fresh(&model, OPENING, &greedy(20)).ids, expected);
    }
    // They have lost nothing.
    let expected = fresh(&self::model("llama"), OPENING, &greedy(400)).ids;
    for mut generation in unread {
        assert_eq!(generation.output().unwrap().ids, expected);
    }
}

#[test]
fn thousands_of_sessions_come_and_go() {
    let model = model("stories260K");
    let expected = fresh(&model, OPENING, &greedy(1)).ids;
    for i in 0..3000 {
        let session = model.session().unwrap();
        if i % 10 == 0 {
            drop(session.generate(OPENING, greedy(50)).unwrap());
        }
        if i % 50 == 0 {
            assert_eq!(
                session.fork().unwrap().generate(OPENING, greedy(1)).unwrap().output().unwrap().ids,
                expected
            );
        }
    }
    let all: Vec<_> = (0..500).map(|_| model.session().unwrap()).collect();
    let running: Vec<_> = all.iter().map(|session| session.generate(OPENING, greedy(1)).unwrap()).collect();
    for mut generation in running {
        assert_eq!(generation.output().unwrap().ids, expected);
    }
}

/// A short prompt does not wait for a long one.
#[test]
fn a_short_prompt_is_computed_beside_a_long_one() {
    let (permit, permits) = std::sync::mpsc::channel::<()>();
    let permits = std::sync::Mutex::new(permits);
    let engine = Wrapped::forward(move |_| {
        let _ = permits.lock().unwrap().recv();
        Ok(())
    });
    let options = one_thread().engine(engine).prefill_chunk(16).context(1024);
    let model = Model::open(path("llama"), &options).unwrap();
    let long: Vec<_> = long_prompt().into_iter().cycle().take(900).collect();
    let mut long = model.generate(long, greedy(2)).unwrap();
    permit.send(()).unwrap();
    let mut short = model.generate(prompt("llama", 1)[..10].to_vec(), greedy(2)).unwrap();
    // One may have begun before the short one was there.
    for _ in 0..3 {
        permit.send(()).unwrap();
    }
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let began = std::time::Instant::now();
    let first = loop {
        match short.poll_event(&mut cx) {
            std::task::Poll::Ready(event) => break event.unwrap(),
            std::task::Poll::Pending => std::thread::sleep(std::time::Duration::from_millis(2)),
        }
        assert!(began.elapsed().as_secs() < 60, "the short prompt's first token does not come with 4 chunks");
    };
    assert!(first.is_ok());
    drop(permit);
    assert!(short.output().is_ok() && long.output().is_ok());
}

#[test]
fn wakers_that_panic_end_their_own_generation() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("as planned");
        }
    }
    let model = model("llama");
    let mut other = model.generate(OPENING, greedy(50)).unwrap();
    let session = model.session().unwrap();
    let mut generation = session.generate(long_prompt(), greedy(50)).unwrap();
    let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
    let mut cx = std::task::Context::from_waker(&waker);
    while generation.poll_event(&mut cx).is_ready() {}
    // One event came before, then it ends.
    let ended: Vec<Result<_, Error>> = generation.by_ref().collect();
    assert!(ended.iter().any(Result::is_err) && ended.len() <= 2, "{ended:?}");
    assert_eq!(other.output().unwrap().ids, fresh(&self::model("llama"), OPENING, &greedy(50)).ids);
    assert_eq!(fresh(&model, OPENING, &greedy(5)).ids.len(), 5);
}
