//! Does a session remember without changing what comes out?

use skulk::{ErrorKind, Prompt, Sampling, TokenId};

use crate::generate::common::{NAMES, OPENING, fresh, greedy, model, on, reference_prompt};

#[test]
fn a_second_turn_computes_only_what_is_new() {
    for name in NAMES {
        let model = model(name);
        let session = model.session().unwrap();
        let first = on(&session, OPENING, &greedy(12));
        let held = session.tokens().unwrap();
        assert_eq!(held.len(), first.finish.usage.prompt_tokens + 12);
        assert_eq!(held[held.len() - 12..], first.ids);

        let mut prompt = held.clone();
        prompt.extend(model.tokenizer().encode(" Then Lily", false).unwrap());
        let second = on(&session, prompt.clone(), &greedy(12));
        // The last sampled token was never computed.
        assert_eq!(second.finish.usage.cached_tokens, held.len() - 1, "{name}");
        assert_eq!(second.finish.usage.prompt_tokens, prompt.len());
        assert_eq!(second.ids, fresh(&model, prompt, &greedy(12)).ids, "{name}");
    }
}

#[test]
fn appended_text_follows_what_the_session_holds() {
    for name in NAMES {
        let model = model(name);
        let session = model.session().unwrap();
        let first = on(&session, Prompt::Append(OPENING.into()), &greedy(8));
        assert_eq!(first.ids, fresh(&model, OPENING, &greedy(8)).ids, "the first text gets its BOS");
        let mut whole = session.tokens().unwrap();
        whole.extend(model.tokenizer().encode(" They", false).unwrap());
        let mut turn = session.generate(Prompt::Append(" They".into()), greedy(8)).unwrap();
        assert_eq!(turn.prompt_ids(), whole);
        assert_eq!(turn.output().unwrap().ids, fresh(&model, whole, &greedy(8)).ids, "{name}");
    }
}

#[test]
fn truncated_sessions_generate_the_same_again() {
    for name in NAMES {
        let model = model(name);
        let session = model.session().unwrap();
        // Longer than the gemma3 fixture's window, so that keys are lost and computed again.
        let prompt = reference_prompt(name, 2);
        let first = on(&session, prompt.clone(), &greedy(40));
        session.truncate(prompt.len()).unwrap();
        assert_eq!(session.tokens().unwrap(), prompt);
        assert_eq!(on(&session, prompt.clone(), &greedy(40)).ids, first.ids, "{name}");

        session.truncate(prompt.len() - 5).unwrap();
        let cut = prompt[..prompt.len() - 5].to_vec();
        assert_eq!(on(&session, cut.clone(), &greedy(10)).ids, fresh(&model, cut, &greedy(10)).ids, "{name}");

        session.truncate(0).unwrap();
        assert_eq!(on(&session, prompt, &greedy(40)).ids, first.ids, "{name}");
        let error = session.truncate(10_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn another_prompt_replaces_what_differs() {
    let model = model("gemma3");
    let session = model.session().unwrap();
    on(&session, reference_prompt("gemma3", 2), &greedy(30));
    for prompt in [0, 1, 2] {
        let prompt = reference_prompt("gemma3", prompt);
        assert_eq!(on(&session, prompt.clone(), &greedy(9)).ids, fresh(&model, prompt, &greedy(9)).ids);
    }
}

#[test]
fn sessions_at_the_same_time_do_not_see_each_other() {
    for name in NAMES {
        let model = model(name);
        let options = |i: u64| greedy(24).sampling(Sampling::default().temperature(0.9).seed(i));
        let prompt = |i: u64| reference_prompt(name, i as usize % 3);
        let alone: Vec<Vec<TokenId>> = (0..5).map(|i| fresh(&model, prompt(i), &options(i)).ids).collect();
        let together: Vec<Vec<TokenId>> = std::thread::scope(|scope| {
            let (model, options, prompt) = (&model, &options, &prompt);
            let threads: Vec<_> =
                (0..5).map(|i| scope.spawn(move || fresh(model, prompt(i), &options(i)).ids)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(together, alone, "{name}");
    }
}

#[test]
fn a_session_runs_one_generation_at_a_time() {
    let model = model("llama");
    let session = model.session().unwrap();
    // More events than the channel holds: it is still running while nobody reads.
    let running = session.generate(OPENING, greedy(500)).unwrap();
    for error in [
        session.generate(OPENING, greedy(1)).err().unwrap(),
        session.tokens().unwrap_err(),
        session.truncate(0).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::SessionBusy);
        assert!(error.hint().is_some());
    }
    drop(running);
    assert_eq!(on(&session, OPENING, &greedy(5)).ids, fresh(&model, OPENING, &greedy(5)).ids);
}

#[test]
fn a_refused_call_leaves_the_session_free_and_as_it_was() {
    let model = model("llama");
    let session = model.session().unwrap();
    on(&session, OPENING, &greedy(5));
    let before = session.tokens().unwrap();
    assert!(session.generate("", greedy(1)).is_err());
    assert!(session.generate(OPENING, greedy(100_000)).is_err());
    assert_eq!(session.tokens().unwrap(), before);
}

#[test]
fn dropping_a_generation_frees_its_session_at_once() {
    for name in NAMES {
        let model = model(name);
        let session = model.session().unwrap();
        for read in [0, 1, 7] {
            let mut generation = session.generate(OPENING, greedy(200)).unwrap();
            generation.by_ref().take(read).for_each(|e| drop(e.unwrap()));
            drop(generation);
            assert_eq!(on(&session, OPENING, &greedy(9)).ids, fresh(&model, OPENING, &greedy(9)).ids);
        }
    }
}
