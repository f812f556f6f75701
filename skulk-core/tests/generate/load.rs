//! What does loading report, and can it be stopped?

use std::sync::{Arc, Mutex};

use skulk::{CancelToken, ErrorKind, Memory, Model};

use crate::common::{NAMES, one_thread, path};

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

#[test]
fn stages_say_where_their_weights_lie() {
    for name in NAMES {
        let of = |memory| {
            let model = Model::open(path(name), &one_thread().stages(2).memory(memory)).unwrap();
            model.stages().iter().map(|stage| stage.memory).collect::<Vec<_>>()
        };
        assert_eq!(of(Memory::Mapped), [Memory::Mapped; 2], "{name}");
        assert_eq!(of(Memory::Resident), [Memory::Resident; 2], "{name}");
        assert!(!of(Memory::Auto).contains(&Memory::Auto), "{name}");
    }
}
