//! Is an interrupted extraction continued, and what it leads to the same as if nothing had happened?

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use skulk::extract::{ExtractOptions, VindexStorage, VindexWriter};
use skulk::vindex::VindexLevel;
use skulk::{CancelToken, ErrorKind, open_checkpoint};

use super::{difference, extract, extracted, scratch, timeless, tiny, undisturbed};
use crate::vindex::origin;

fn whole() -> ExtractOptions {
    ExtractOptions::default().storage(VindexStorage::Q4K).down_q4k(true).feature_major_down(true).threads(2)
}

/// Steps that an extraction tells of.
fn steps(source: &Path, options: ExtractOptions) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    extracted(
        source,
        options.progress(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        }),
    );
    count.load(Ordering::Relaxed)
}

/// Cancels at the `at`-th step.
fn cancelled_at(options: ExtractOptions, at: usize) -> ExtractOptions {
    let (token, count) = (CancelToken::new(), AtomicUsize::new(0));
    let switch = token.clone();
    options.cancel(token).progress(move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == at {
            switch.cancel();
        }
    })
}

#[test]
fn a_cancelled_extraction_goes_on_where_it_was() {
    let source = tiny();
    let source = source.path();
    for options in [whole(), ExtractOptions::default().level(VindexLevel::Inference).threads(2)] {
        let options = options.name("n");
        let undisturbed = undisturbed(source, options.clone());
        for at in 0..steps(source, options.clone()) {
            let folder = scratch();
            let target = folder.path().join("model.vindex");
            let error = extract(source, cancelled_at(options.clone(), at), &target).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            assert!(!target.exists() && folder.path().join(".model.vindex.partial").exists());
            let report = extract(source, options.clone(), &target).unwrap();
            assert!(report.resumed.bytes() > 0, "nothing was taken over at step {at}");
            assert_eq!(difference(&timeless(&target), &undisturbed), None, "at step {at}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}

/// Interrupted at every step of every run: each gets further by at least one section.
#[test]
fn many_interruptions_come_to_an_end() {
    let source = tiny();
    let source = source.path();
    let folder = scratch();
    let target = folder.path().join("model.vindex");
    let mut before = 0;
    let mut runs = 0;
    let total = loop {
        runs += 1;
        let last = Arc::new(AtomicUsize::new(0));
        let (token, seen) = (CancelToken::new(), Arc::clone(&last));
        let (switch, start) = (token.clone(), before);
        let options = whole().name("n").cancel(token).progress(move |step| {
            seen.store(step.bytes_done.bytes() as usize, Ordering::Relaxed);
            if step.bytes_done.bytes() as usize > start {
                switch.cancel();
            }
        });
        match extract(source, options, &target) {
            Ok(report) => break report,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}"),
        }
        let now = last.load(Ordering::Relaxed);
        assert!(now > before, "run {runs} stayed at {before} bytes");
        before = now;
    };
    assert!(runs > 30, "{runs}");
    // All but the hashes and the index, which are written by the last run.
    let small: u64 = ["index.json", "skulk_hashes.json"]
        .map(|name| std::fs::metadata(target.join(name)).unwrap().len())
        .iter()
        .sum();
    assert_eq!(total.resumed.bytes() + small, total.bytes.bytes());
    assert_eq!(difference(&timeless(&target), &undisturbed(source, whole().name("n"))), None);
}

#[test]
fn threads_do_not_change_bytes() {
    for &storage in VindexStorage::ALL {
        let options = ExtractOptions::default().storage(storage).name("n");
        let of = |threads| undisturbed(&origin(), options.clone().threads(threads));
        let one = of(1);
        for threads in [2, 5] {
            assert_eq!(difference(&of(threads), &one), None, "{storage}, {threads} threads");
        }
    }
}

/// No more of the source is mapped than the tensor that is written, the one behind it, and the embedding table that
/// features are compared with.
#[test]
fn few_tensors_are_mapped_at_a_time() {
    let checkpoint = open_checkpoint(origin()).unwrap();
    let largest = checkpoint.tensors().iter().map(|tensor| tensor.len).max().unwrap();
    let table = checkpoint.tensor("model.embed_tokens.weight").unwrap().len;
    let most = Arc::new(AtomicUsize::new(0));
    for &storage in VindexStorage::ALL {
        let (seen, files) = (Arc::clone(&most), checkpoint.files().to_vec());
        let options = ExtractOptions::default().storage(storage).threads(2).progress(move |_| {
            let mapped: u64 = files.iter().map(|file| file.mapped()).sum();
            seen.fetch_max(mapped as usize, Ordering::Relaxed);
        });
        let folder = scratch();
        VindexWriter::new(&*checkpoint, options).unwrap().write(folder.path().join("v")).unwrap();
    }
    let most = most.load(Ordering::Relaxed) as u64;
    assert!(most > 0 && most <= 2 * largest + table, "{most} bytes were mapped");
    assert_eq!(checkpoint.files().iter().map(|file| file.mapped()).sum::<u64>(), 0);
}

#[test]
fn steps_add_up() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let options = whole().progress(move |step| list.lock().unwrap().push(step.clone()));
    let folder = scratch();
    let checkpoint = open_checkpoint(origin()).unwrap();
    let writer = VindexWriter::new(&*checkpoint, options).unwrap();
    let planned = writer.files();
    let report = writer.write(folder.path().join("v")).unwrap();
    let seen = seen.lock().unwrap();
    assert!(
        seen.windows(2).all(
            |pair| pair[0].bytes_done <= pair[1].bytes_done && pair[0].bytes_total == pair[1].bytes_total
        )
    );
    assert_eq!(seen.last().unwrap().bytes_done, writer.bytes());
    assert!(seen.iter().any(|step| step.layer == Some(1)));
    assert_eq!(report.files[..planned.len()], planned[..]);
    for file in &report.files {
        let len = std::fs::metadata(report.path.join(&file.name)).unwrap().len();
        assert_eq!(len, file.bytes.bytes(), "{}", file.name);
    }
    assert_eq!(report.files.len(), super::files(&report.path).len());
    assert_eq!(report.resumed.bytes(), 0);
}

/// What a child process does whose parent is a test below: an extraction that kills itself at a step, or meets a limit
/// of its files' length. It does nothing where nobody asks.
#[test]
fn child() {
    let Some(target) = std::env::var_os("SKULK_TEST_EXTRACT_TO") else { return };
    let source = std::env::var_os("SKULK_TEST_EXTRACT_FROM").unwrap();
    let at: Option<usize> = std::env::var("SKULK_TEST_KILL_AT").ok().map(|at| at.parse().unwrap());
    let count = AtomicUsize::new(0);
    let options = whole().name("n").progress(move |_| {
        if Some(count.fetch_add(1, Ordering::Relaxed)) == at {
            let id = std::process::id().to_string();
            std::process::Command::new("kill").args(["-9", &id]).status().unwrap();
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
    });
    if let Err(error) = extract(Path::new(&source), options, Path::new(&target)) {
        println!("{error}");
        std::process::exit(7);
    }
}

#[cfg(unix)]
fn run_child(source: &Path, target: &Path, shell: &str, kill_at: Option<usize>) -> std::process::Output {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("{shell} exec \"$0\" --exact vindex::extract::resume::child --nocapture")]);
    command.arg(std::env::current_exe().unwrap()).env("SKULK_TEST_EXTRACT_TO", target);
    command.env("SKULK_TEST_EXTRACT_FROM", source);
    if let Some(at) = kill_at {
        command.env("SKULK_TEST_KILL_AT", at.to_string());
    }
    command.output().unwrap()
}

#[cfg(unix)]
#[test]
fn a_killed_extraction_goes_on() {
    let source = tiny();
    let source = source.path();
    let undisturbed = undisturbed(source, whole().name("n"));
    let steps = steps(source, whole());
    for at in [0, steps / 3, steps / 2, steps - 1] {
        let folder = scratch();
        let target = folder.path().join("model.vindex");
        let output = run_child(source, &target, "", Some(at));
        assert!(!output.status.success() && output.status.code() != Some(7), "{output:?}");
        assert!(!target.exists());
        let report = extract(source, whole().name("n"), &target).unwrap();
        // Files that were whole are taken over, and of the one under way what was marked.
        assert_eq!(report.resumed.bytes() > 0, at > 0, "at step {at}");
        assert_eq!(difference(&timeless(&target), &undisturbed), None, "at step {at}");
    }
}

/// A limit of the length of files is what a full disk is, but for its name.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_that_says_so() {
    let source = tiny();
    let source = source.path();
    let folder = scratch();
    let target = folder.path().join("model.vindex");
    // Blocks of 512 bytes; the signal that would end the process is ignored.
    let output = run_child(source, &target, "trap '' XFSZ; ulimit -f 50;", None);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(said.contains("[file.io]") && said.contains("make room") && said.contains(".bin"), "{said}");
    assert!(!target.exists());
    let report = extract(source, whole().name("n"), &target).unwrap();
    assert!(report.resumed.bytes() > 0 || said.contains("embeddings.bin"), "{said}");
    assert_eq!(difference(&timeless(&target), &undisturbed(source, whole().name("n"))), None);
}
