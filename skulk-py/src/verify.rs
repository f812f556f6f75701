//! How does Python check vindex folders? `skulk.verify_vindex`.

use std::path::PathBuf;

use pyo3::prelude::*;
use skulk::vindex::{VerifyOptions, verify_vindex as verify};
use skulk_contract::VerifyReport;

use crate::cancel::CancelToken;
use crate::convert::optional;
use crate::json::VINDEX;
use crate::vindex::{send, tell};
use crate::wait::run;

/// Verifies a vindex folder, which need not be one that opens: what keeps it from that is a problem of the report.
///
/// Sizes, structure and, with `hashes`, all hashes that the folder has; `values` looks for numbers that are infinite or
/// none, which reads all weights. `threads` are pieces of files that are looked at at a time (all the hardware's by
/// default). `progress` is called with a `skulk.vindex.VindexProgress`. `cancel` and Ctrl-C end the work soon.
#[pyfunction]
#[pyo3(signature = (path, *, hashes=true, values=false, threads=None, progress=None, cancel=None))]
pub(crate) fn verify_vindex<'py>(
    py: Python<'py>,
    path: PathBuf,
    hashes: bool,
    values: bool,
    threads: Option<i128>,
    progress: Option<Bound<'py, PyAny>>,
    cancel: Option<&Bound<'_, CancelToken>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut options = VerifyOptions::default().hashes(hashes).values(values);
    options.threads = optional("threads", threads)?.unwrap_or(options.threads);
    let work = |cancel, steps| verify(path, &options.cancel(cancel).progress(send(steps)));
    let report = run(py, cancel, work, |step| tell(py, progress.as_ref(), &step))?;
    VINDEX.one(py, "VerifyReport", &VerifyReport::from(&report))
}
