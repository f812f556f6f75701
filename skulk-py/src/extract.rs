//! How does Python write vindex folders? `skulk.extract`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skulk::extract::VindexWriter;
use skulk_contract::options::ExtractOptions;

use crate::cancel::CancelToken;
use crate::given;
use crate::json::VINDEX;
use crate::progress;
use crate::vindex::{send, tell};
use crate::wait::run;

/// Writes the model of a checkpoint as a vindex folder, which LARQL reads too.
///
/// `source` is whatever `Model.load` takes; `target` must not exist or be empty. `options` are those of
/// `skulk.options.ExtractOptions`. After an interruption, calling again with the same arguments continues where it ended.
/// `progress` is called with a `skulk.vindex.VindexProgress`. `cancel` and Ctrl-C end the work soon.
#[pyfunction]
#[pyo3(signature = (source, target, *, progress=None, cancel=None, **options), text_signature = "(source, target, *, level='all', storage='f16', down_q4k=False, feature_major_down=False, gate_vectors=True, feature_tokens=10, name=None, threads=None, restart=False, progress=None, cancel=None)")]
pub(crate) fn extract<'py>(
    py: Python<'py>,
    source: PathBuf,
    target: PathBuf,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<&Bound<'_, CancelToken>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = given::options(options, ExtractOptions::read)?;
    let progress = progress::callback(progress, "extracting", "B")?;
    let work = |cancel, steps| {
        let options = options.cancel(cancel).progress(send(steps));
        let checkpoint = skulk::open_checkpoint(source)?;
        VindexWriter::new(&*checkpoint, options)?.write(target)
    };
    let report = run(py, cancel, work, |step| tell(py, progress.as_ref(), &step))?;
    VINDEX.one(py, "ExtractReport", &report)
}
