//! What does loading report, and can it be stopped?

use std::sync::{Arc, Mutex};

use skulk::{CancelToken, EngineOptions, ErrorKind, LoadOptions, Memory, Model, Placement};

use crate::fixtures::copied;
use crate::generate::common::{NAMES, OPENING, fresh, greedy, model, one_thread, path, with_engine};

#[test]
fn progress_is_called_once_a_layer() {
    for (name, stages) in NAMES.into_iter().zip([1, 2, 3]) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let in_callback = Arc::clone(&seen);
        let options = one_thread().stages(stages).progress(move |p| {
            in_callback.lock().unwrap().push((p.done, p.total));
        });
        let model = Model::open(path(name), &options).unwrap();
        let total = model.arch().n_layers();
        assert_eq!(*seen.lock().unwrap(), (1..=total).map(|done| (done, total)).collect::<Vec<_>>());
    }
}

/// Without a placement all is here, whatever this process is called.
#[test]
fn what_nobody_placed_is_on_this_node() {
    let model = Model::open(path("llama"), &one_thread().stages(2).node("desk")).unwrap();
    let stages: Vec<_> = model.placement().stages().iter().map(|stage| stage.node.as_str()).collect();
    assert_eq!(stages, ["desk", "desk"]);
}

#[test]
fn cancelled_loading_says_so() {
    let token = CancelToken::new();
    token.cancel();
    let error = Model::open(path("llama"), &one_thread().cancel(token)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);

    let token = CancelToken::new();
    let in_callback = token.clone();
    let options = one_thread().stages(2).cancel(token).progress(move |p| {
        assert!(p.done <= 3, "loading went on after it was cancelled");
        if p.done == 3 {
            in_callback.cancel();
        }
    });
    assert_eq!(Model::open(path("llama"), &options).unwrap_err().kind(), ErrorKind::Cancelled);
}

/// Neither the tokenizer, which is built beside, nor what follows the last layer is waited for: here the tokenizer's
/// file is a pipe that nobody writes to.
#[cfg(unix)]
#[test]
fn cancelled_loading_waits_for_no_tokenizer() {
    let folder = copied(&path("llama"));
    let pipe = folder.path().join("tokenizer.json");
    std::fs::remove_file(&pipe).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for last in [0, 4] {
        let token = CancelToken::new();
        if last == 0 {
            token.cancel();
        }
        let (folder, in_callback) = (folder.path().to_owned(), token.clone());
        let options = one_thread().cancel(token).progress(move |p| {
            if p.done == last {
                in_callback.cancel();
            }
        });
        let (done, loaded) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(Model::open(folder, &options).map(drop)));
        let loaded = loaded.recv_timeout(std::time::Duration::from_secs(20));
        // Ends whoever reads.
        drop(std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
        assert_eq!(loaded.expect("it waits").unwrap_err().kind(), ErrorKind::Cancelled);
    }
}

#[test]
fn cancelled_loading_keeps_no_compact_head() {
    let token = CancelToken::new();
    let in_callback = token.clone();
    let engine = EngineOptions::default().threads(1).screen_head(true);
    let options = with_engine(engine).cancel(token).progress(move |p| {
        if p.done == p.total {
            in_callback.cancel();
        }
    });
    assert_eq!(Model::open(path("llama"), &options).unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn stages_say_where_their_weights_lie() {
    for name in NAMES {
        let of = |memory| {
            let model = Model::open(
                path(name),
                &with_engine(EngineOptions::default().threads(1).memory(memory)).stages(2),
            )
            .unwrap();
            model.stages().iter().map(|stage| stage.memory).collect::<Vec<_>>()
        };
        assert_eq!(of(Memory::Mapped), [Memory::Mapped; 2], "{name}");
        assert_eq!(of(Memory::Resident), [Memory::Resident; 2], "{name}");
        assert!(!of(Memory::Auto).contains(&Memory::Auto), "{name}");
    }
}

#[cfg(feature = "candle")]
#[test]
fn layers_run_where_they_are_placed() {
    use skulk::engines::{candle_cpu, cpu};
    let expected = fresh(&model("stories260K"), OPENING, &greedy(40)).text;
    let check = |options: &LoadOptions, placed: &str| {
        let model = Model::open(path("stories260K"), options).unwrap();
        assert_eq!(model.placement().to_string(), placed);
        let stages = model.stages().iter();
        for (stage, placed) in stages.zip(model.placement().stages()) {
            assert_eq!((&stage.engine, &stage.layers), (&placed.engine().unwrap(), &placed.layers));
        }
        assert_eq!(fresh(&model, OPENING, &greedy(40)).text, expected, "{placed}");
    };
    let placement: Placement = "cpu=1,candle-cpu=2,cpu=2".parse().unwrap();
    let placed = "layers 0..1 on cpu → layers 1..3 on candle-cpu → layers 3..5 on cpu";
    let by_name = with_engine(EngineOptions::default().threads(1)).ffn_on_cpu(true).placement(placement);
    check(&by_name, placed);
    // A budget is for what the CPU computes: without that an engine that copies weights refuses it.
    for on_cpu in [false, true] {
        let budget = EngineOptions::default().threads(1).ffn_budget(skulk::ByteSize(1 << 20));
        let options = with_engine(budget).ffn_on_cpu(on_cpu).engine_name("candle-cpu");
        match Model::open(path("stories260K"), &options) {
            Ok(model) => assert!(on_cpu && model.ffn_memory().is_some()),
            Err(error) => assert!(!on_cpu && error.kind() == ErrorKind::InvalidArgument, "{error}"),
        }
    }
    // Engines of the caller's take the place of those of that name.
    let options = EngineOptions::default().threads(2);
    check(&by_name.clone().engine(cpu(&options).unwrap()).engine(candle_cpu(&options).unwrap()), placed);
    check(&one_thread().engine_name("candle-cpu"), "layers 0..5 on candle-cpu");
    check(
        &one_thread()
            .stages(2)
            .engine_name("candle-cpu")
            .engine(cpu(&options).unwrap())
            .engine(candle_cpu(&options).unwrap()),
        "layers 0..3 on candle-cpu → layers 3..5 on candle-cpu",
    );
    check(
        &one_thread().engine(candle_cpu(&options).unwrap()).engine(cpu(&options).unwrap()),
        "layers 0..5 on candle-cpu",
    );
}
