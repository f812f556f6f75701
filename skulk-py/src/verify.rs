//! How does Python check vindex folders? `skulk.verify_vindex`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skulk::vindex::verify_vindex as verify;
use skulk_contract::VerifyReport;
use skulk_contract::options::VerifyOptions;

use crate::cancel::CancelToken;
use crate::given;
use crate::json::VINDEX;
use crate::progress;
use crate::vindex::{send, tell};
use crate::wait::run;

/// Verifies a vindex folder, which need not be one that opens: what keeps it from that is a problem of the report.
///
/// Sizes, structure, and what `options` ask for, those of `skulk.options.VerifyOptions`. `progress` is called with a
/// `skulk.vindex.VindexProgress`. `cancel` and Ctrl-C end the work soon.
#[pyfunction]
#[pyo3(signature = (path, *, progress=None, cancel=None, **options), text_signature = "(path, *, hashes=True, values=False, threads=None, progress=None, cancel=None)")]
pub(crate) fn verify_vindex<'py>(
    py: Python<'py>,
    path: PathBuf,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<&Bound<'_, CancelToken>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = given::options(options, VerifyOptions::read)?;
    let progress = progress::callback(progress, "verifying", "B")?;
    let work = |cancel, steps| verify(path, &options.cancel(cancel).progress(send(steps)));
    let report = run(py, cancel, work, |step| tell(py, progress.as_ref(), &step))?;
    VINDEX.one(py, "VerifyReport", &VerifyReport::from(&report))
}
