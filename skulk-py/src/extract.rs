//! How does Python write vindex folders? `skulk.extract`.

use std::path::PathBuf;

use pyo3::prelude::*;
use skulk::extract::{ExtractOptions, VindexStorage, VindexWriter};
use skulk::vindex::VindexLevel;

use crate::cancel::CancelToken;
use crate::convert::{choice, optional, unsigned};
use crate::json::VINDEX;
use crate::vindex::{send, tell};
use crate::wait::run;

/// Writes the model of a checkpoint as a vindex folder, which LARQL reads too.
///
/// `source` is whatever `Model.load` takes; `target` must not exist or be empty. `level` is how much of the model:
/// "browse", "attention", "inference" or "all". `storage` keeps weights as "f32", "f16" or "q4k"; with "q4k" everything
/// that generation takes is written, `down_q4k` makes down projections smaller, `feature_major_down` adds them
/// transposed, and `gate_vectors=False` leaves out what the quantised gate projections stand for. `feature_tokens` are
/// kept for each feature; 0: none. `name` is the model's in the index: its file's or folder's by default. `threads` are
/// those of computing (all by default). After an interruption, calling again with the same arguments continues where
/// it ended, or with `restart` anew.
/// `progress` is called with a `skulk.vindex.VindexProgress`. `cancel` and Ctrl-C end the work soon.
#[pyfunction]
#[pyo3(signature = (source, target, *, level="all", storage="f16", down_q4k=false, feature_major_down=false, gate_vectors=true, feature_tokens=10, name=None, threads=None, restart=false, progress=None, cancel=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(crate) fn extract<'py>(
    py: Python<'py>,
    source: PathBuf,
    target: PathBuf,
    level: &str,
    storage: &str,
    down_q4k: bool,
    feature_major_down: bool,
    gate_vectors: bool,
    feature_tokens: i128,
    name: Option<String>,
    threads: Option<i128>,
    restart: bool,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<&Bound<'_, CancelToken>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut options = ExtractOptions::default()
        .level(choice("level", level, VindexLevel::ALL)?)
        .storage(choice("storage", storage, VindexStorage::ALL)?)
        .down_q4k(down_q4k)
        .feature_major_down(feature_major_down)
        .gate_vectors(gate_vectors)
        .feature_tokens(unsigned("feature_tokens", feature_tokens)?)
        .restart(restart);
    options.name = name;
    options.threads = optional("threads", threads)?.unwrap_or(options.threads);
    let work = |cancel, steps| {
        let options = options.cancel(cancel).progress(send(steps));
        let checkpoint = skulk::open_checkpoint(source)?;
        VindexWriter::new(&*checkpoint, options)?.write(target)
    };
    let report = run(py, cancel, work, |step| tell(py, progress.as_ref(), &step))?;
    VINDEX.one(py, "ExtractReport", &report)
}
