//! Does a saved session go on as if it had never been saved? And is whatever else a file holds refused?

use std::path::{Path, PathBuf};
use std::time::Duration;

use rand_chacha::rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};
use skulk::{
    ByteSize, EngineOptions, ErrorKind, KvType, Model, Precision, Prompt, SavedSession, Session, TokenId,
    WhenFull,
};

use crate::generate::common::{
    NAMES, greedy, long_prompt, model, on, one_thread, path, reference_prompt, with_engine,
};

fn saved(session: &Session) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conversation.skulk");
    session.save(&file).unwrap();
    (folder, file)
}

fn bytes(session: &Session) -> Vec<u8> {
    std::fs::read(saved(session).1).unwrap()
}

/// What it writes next, with how many tokens were not computed again.
fn goes_on(session: &Session) -> (Vec<TokenId>, usize) {
    let mut next = session.tokens().unwrap();
    next.extend([TokenId(7), TokenId(5)]);
    let output = on(session, next, &greedy(12));
    (output.ids, output.finish.usage.cached_tokens)
}

#[test]
fn it_goes_on_as_the_one_that_was_saved() {
    // The last one's layers attend to latent vectors, at positions that are chosen.
    let names = NAMES.iter().copied().chain(["deepseek_v32"]);
    for (name, &kv) in names.flat_map(|name| KvType::ALL.iter().map(move |kv| (name, kv))) {
        let model = |stages| Model::open(path(name), &one_thread().kv(kv).stages(stages)).unwrap();
        let (model, alone, stages) = (model(1), model(1), model(2));
        // Longer than the window of gemma3's fixture, and than a page.
        let prompts = [reference_prompt(name, 0), reference_prompt(name, 2).repeat(3)];
        for prompt in prompts {
            let session = model.session().unwrap();
            on(&session, prompt, &greedy(9));
            let (_folder, file) = saved(&session);
            let tokens = session.tokens().unwrap();
            let (expected, cached) = goes_on(&session);
            // In another process, cut into other stages, or beside the one that was saved.
            for model in [&alone, &stages, &model] {
                let restored = model.restore(&file).unwrap();
                assert_eq!(restored.tokens().unwrap(), tokens);
                assert_eq!(goes_on(&restored), (expected.clone(), cached), "{name}, {kv}");
                assert_eq!(cached, tokens.len() - 1);
            }
        }
    }
}

#[test]
fn what_is_restored_is_shared_and_saved_again() {
    let (first, second) = (model("llama"), model("llama"));
    let session = first.session().unwrap();
    on(&session, long_prompt(), &greedy(3));
    let (_folder, file) = saved(&session);
    let restored = second.restore(&file).unwrap();
    let in_use = second.kv_memory().in_use;
    assert_eq!(bytes(&restored), std::fs::read(&file).unwrap());
    // Twice the same takes no more, but for the last page, which is not whole.
    let again = second.restore(&file).unwrap();
    assert!(second.kv_memory().in_use.bytes() < in_use.bytes() * 4 / 3);
    let tokens = restored.tokens().unwrap();
    drop((restored, again));
    // Others find it.
    let usage = on(&second.session().unwrap(), tokens, &greedy(1)).finish.usage;
    assert_eq!(usage.cached_tokens, 448);
}

/// What a page held before is nobody's business.
#[test]
fn a_file_holds_nothing_of_others() {
    for &kv in KvType::ALL {
        // Pages for one session of full length: the next one takes those that the first one had.
        let options = one_thread().context(512).kv(kv);
        let most = Model::open(path("llama"), &options).unwrap().stages()[0].kv_cache;
        let model = || Model::open(path("llama"), &options.clone().kv_memory(most)).unwrap();
        holds_nothing_of_others(&model(), &model());
    }
}

fn holds_nothing_of_others(used: &Model, unused: &Model) {
    let other = used.session().unwrap();
    on(&other, long_prompt(), &greedy(3));
    drop(other);
    let files = [used, unused].map(|model| {
        let session = model.session().unwrap();
        on(&session, reference_prompt("llama", 1), &greedy(30));
        // Nor what the conversation has forgotten.
        session.truncate(20).unwrap();
        bytes(&session)
    });
    assert!(files[0] == files[1]);
}

#[test]
fn sessions_without_keys_and_values_are_saved() {
    let model = model("llama");
    let empty = model.session().unwrap();
    let (_folder, file) = saved(&empty);
    let restored = model.restore(&file).unwrap();
    assert!(restored.tokens().unwrap().is_empty());
    let prompt = reference_prompt("llama", 0);
    assert_eq!(on(&restored, prompt.clone(), &greedy(4)).ids, on(&empty, prompt, &greedy(4)).ids);
}

fn refused(model: &Model, file: &Path) -> skulk::Error {
    let error = model.restore(file).err().unwrap();
    assert!(error.to_string().contains("conversation.skulk") && error.hint().is_some(), "{error}");
    // Sessions that were dropped before are closed on the model's thread.
    let closed = || model.kv_memory().in_use == ByteSize(0);
    assert!((0..1000).any(|_| closed() || {
        std::thread::sleep(Duration::from_millis(10));
        false
    }));
    error
}

#[test]
fn other_models_refuse_it() {
    let model = model("llama");
    let session = model.session().unwrap();
    on(&session, long_prompt(), &greedy(3));
    let (_folder, file) = saved(&session);
    let precise = with_engine(EngineOptions::default().threads(1).precision(Precision::Exact));
    for (name, options, said) in [
        ("gemma3", one_thread(), "of another"),
        ("llama", one_thread().kv(KvType::F32), "f32"),
        ("llama", one_thread().kv(KvType::F16), "f16"),
        ("llama", precise.kv(KvType::BF16), "exact"),
    ] {
        let other = Model::open(path(name), &options).unwrap();
        let error = refused(&other, &file);
        assert_eq!(error.kind(), ErrorKind::SessionMismatch);
        assert!(error.to_string().contains(said), "{error}");
    }
    // A changed weight is another model, whatever else is the same.
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(path("llama")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let weights = folder.path().join("model.safetensors");
    let mut changed = std::fs::read(&weights).unwrap();
    let middle = changed.len() / 2;
    changed[middle..middle + 40_000].iter_mut().for_each(|byte| *byte ^= 1);
    std::fs::write(weights, changed).unwrap();
    let other = Model::open(folder.path(), &one_thread()).unwrap();
    assert_eq!(refused(&other, &file).kind(), ErrorKind::SessionMismatch);

    let small = Model::open(path("llama"), &one_thread().context(256)).unwrap();
    assert_eq!(refused(&small, &file).kind(), ErrorKind::ContextOverflow);
}

/// On the CPU keys and values are in bfloat16 unless somebody says otherwise, or precision is to be exact.
#[test]
fn how_keys_and_values_are_kept_by_default() {
    let precise = || with_engine(EngineOptions::default().threads(1).precision(Precision::Exact));
    for (default, same, other) in [
        (one_thread(), one_thread().kv(KvType::BF16), one_thread().kv(KvType::F16)),
        (precise(), precise().kv(KvType::F16), precise().kv(KvType::BF16)),
    ] {
        let model = Model::open(path("llama"), &default).unwrap();
        let session = model.session().unwrap();
        on(&session, long_prompt(), &greedy(3));
        let (_folder, file) = saved(&session);
        let same = Model::open(path("llama"), &same).unwrap().restore(&file).unwrap();
        assert_eq!(goes_on(&same), goes_on(&session));
        let other = Model::open(path("llama"), &other).unwrap();
        assert_eq!(refused(&other, &file).kind(), ErrorKind::SessionMismatch);
    }
}

#[test]
fn damaged_files_are_refused() {
    let model = model("stories260K");
    let session = model.session().unwrap();
    on(&session, "Once", &greedy(3));
    let (_folder, file) = saved(&session);
    session.truncate(0).unwrap();
    drop(session);
    let whole = std::fs::read(&file).unwrap();
    let expect = |bytes: &[u8], kind: ErrorKind| {
        let error = SavedSession::parse(bytes).err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
    };
    for len in (0..whole.len()).step_by(97).chain(whole.len() - 60..whole.len()) {
        expect(&whole[..len], ErrorKind::SessionInvalid);
    }
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(17);
    let mut changed = whole.clone();
    for _ in 0..300 {
        let at = random.next_u64() as usize % whole.len();
        changed[at] ^= 1 << (random.next_u32() % 8);
        expect(&changed, ErrorKind::SessionInvalid);
        changed[at] = whole[at];
    }
    changed.push(0);
    std::fs::write(&file, &changed).unwrap();
    assert_eq!(refused(&model, &file).kind(), ErrorKind::SessionInvalid);
    for (other, kind) in [
        (file.with_file_name("none"), ErrorKind::FileNotFound),
        (file.parent().unwrap().to_owned(), ErrorKind::FileIo),
    ] {
        assert_eq!(model.restore(other).err().unwrap().kind(), kind);
    }
}

/// Bytes with the hash that belongs to them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

/// A file with another index, and all else as it should be.
fn with_index(whole: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let body = &whole[..whole.len() - 32];
    let (body, len) = body.split_at(body.len() - 8);
    let (pages, index) = body.split_at(body.len() - u64::from_le_bytes(len.try_into().unwrap()) as usize);
    let mut index = serde_json::from_slice(index).unwrap();
    change(&mut index);
    let index = serde_json::to_vec(&index).unwrap();
    sealed([pages, &index, &(index.len() as u64).to_le_bytes()].concat())
}

#[test]
fn indices_that_cannot_be_are_refused() {
    let model = model("llama");
    let session = model.session().unwrap();
    on(&session, long_prompt(), &greedy(3));
    let (_folder, file) = saved(&session);
    drop(session);
    let whole = std::fs::read(&file).unwrap();
    let cases: [(&str, serde_json::Value, ErrorKind); 14] = [
        ("/version", 2.into(), ErrorKind::SessionMismatch),
        ("", serde_json::json!({ "version": 2, "other": [] }), ErrorKind::SessionMismatch),
        ("/model", "0".into(), ErrorKind::SessionMismatch),
        ("/held", 501.into(), ErrorKind::SessionMismatch),
        ("/held", 100.into(), ErrorKind::SessionMismatch),
        ("/held", 504.into(), ErrorKind::SessionInvalid),
        ("/held", u64::MAX.into(), ErrorKind::SessionInvalid),
        ("/tokens/3", u32::MAX.into(), ErrorKind::SessionInvalid),
        ("/layers/0/layer", 1.into(), ErrorKind::SessionInvalid),
        ("/layers/0/layout", "".into(), ErrorKind::SessionMismatch),
        ("/layers/0/firstBlock", 1.into(), ErrorKind::SessionMismatch),
        ("/layers/0/start", 0.into(), ErrorKind::SessionInvalid),
        ("/layers/1/start", u64::MAX.into(), ErrorKind::SessionInvalid),
        ("/layers/1/len", u64::MAX.into(), ErrorKind::SessionInvalid),
    ];
    for (field, value, kind) in cases {
        let changed = with_index(&whole, |index| *index.pointer_mut(field).unwrap() = value.clone());
        std::fs::write(&file, changed).unwrap();
        // Fewer tokens than pages may be just as many pages.
        if field == "/held" && value == 501 {
            model.restore(&file).unwrap();
            continue;
        }
        assert_eq!(refused(&model, &file).kind(), kind, "{field} {value}");
    }
    // Whatever an index is, there is an answer.
    let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(18);
    let body = &whole[whole.len() - 600..whole.len() - 32];
    for _ in 0..2000 {
        let mut changed = body.to_vec();
        for _ in 0..1 + random.next_u32() % 3 {
            let at = random.next_u64() as usize % changed.len();
            changed[at] = random.next_u32() as u8;
        }
        let _ = SavedSession::parse(&sealed([&whole[..8], &changed].concat()));
    }
}

#[test]
fn memory_that_is_short_is_an_error_or_an_idle_sessions() {
    let one = model("llama");
    let session = one.session().unwrap();
    on(&session, long_prompt(), &greedy(3));
    let needed = one.kv_memory().in_use;
    let (_folder, file) = saved(&session);
    let with = |most: u64, when_full| {
        let options = one_thread().when_full(when_full).kv_memory(ByteSize(most));
        Model::open(path("llama"), &options).unwrap()
    };
    let error = refused(&with(needed.bytes() / 2, WhenFull::Wait), &file);
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    for (when_full, room) in [(WhenFull::Wait, true), (WhenFull::Evict, true), (WhenFull::Fail, false)] {
        let model = with(needed.bytes() * 3 / 2, when_full);
        let idle = model.session().unwrap();
        on(&idle, reference_prompt("llama", 1).repeat(20)[..400].to_vec(), &greedy(3));
        let expected = on(&idle, Prompt::Append(" a".into()), &greedy(4)).ids;
        let restored = model.restore(&file);
        assert_eq!(restored.is_ok(), room, "{when_full}");
        if let Ok(restored) = restored {
            assert_eq!(goes_on(&restored).1, 502);
            // It computes again what was taken.
            idle.truncate(idle.tokens().unwrap().len() - 4).unwrap();
            let tokens = idle.tokens().unwrap();
            assert_eq!(on(&idle, tokens, &greedy(4)).ids, expected);
        }
    }
}

#[test]
fn files_are_replaced_whole_and_links_are_not_followed() {
    let model = model("llama");
    let session = model.session().unwrap();
    on(&session, reference_prompt("llama", 0), &greedy(3));
    let (folder, file) = saved(&session);
    let before = std::fs::read(&file).unwrap();
    let missing = session.save(folder.path().join("no/such")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::FileNotFound);
    assert_eq!(session.save(folder.path()).unwrap_err().kind(), ErrorKind::FileIo);
    #[cfg(unix)]
    {
        let link = folder.path().join("link");
        std::fs::write(folder.path().join("theirs"), "theirs").unwrap();
        std::os::unix::fs::symlink(folder.path().join("theirs"), &link).unwrap();
        session.save(&link).unwrap();
        assert_eq!(std::fs::read(folder.path().join("theirs")).unwrap(), b"theirs");
        assert_eq!(std::fs::read(&link).unwrap(), before);
        std::fs::remove_file(folder.path().join("theirs")).unwrap();
        std::fs::remove_file(link).unwrap();
    }
    // Nothing else is left beside it, also of those that failed.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let generation = session.generate("a", greedy(400)).unwrap();
    assert_eq!(session.save(&file).unwrap_err().kind(), ErrorKind::SessionBusy);
    drop(generation);
    assert_eq!(std::fs::read(&file).unwrap(), before);
}
