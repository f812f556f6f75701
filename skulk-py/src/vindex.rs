//! How does Python read, browse and slice vindex folders? What is behind `skulk.VindexReader`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use skulk::vindex::VindexProgress;
use skulk::{Checkpoint, DType};
use skulk_contract::SliceReport;
use skulk_contract::folders::{Answer, Folder};
use skulk_contract::functions::{Arguments, Work};
use skulk_contract::options::{SliceOptions, Spelling};

use crate::cancel::CancelToken;
use crate::convert::{optional, text, unsigned};
use crate::error::raise;
use crate::floats::Floats;
use crate::given;
use crate::handle::Handle;
use crate::json::{self, VINDEX};
use crate::progress;
use crate::tokenizer::{Owner, Tokenizer};
use crate::wait::run;

/// What is behind a `skulk.VindexReader`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Vindex(Handle<Arc<Folder>>);

#[pymethods]
impl Vindex {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, threads: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let threads = optional("threads", threads)?;
        let folder = py.detach(|| Folder::open(path, threads)).map_err(raise)?;
        Ok(Self(Handle::new(Arc::new(folder))))
    }

    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn path(&self) -> PyResult<PathBuf> {
        Ok(self.0.get()?.reader().path().to_owned())
    }

    /// What was read when it was opened.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::plain(py, &self.0.get()?.facts().map_err(raise)?)
    }

    /// Answers the question of this name on a thread of its own, which `cancel` and Ctrl-C end: data, or numbers.
    fn ask<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        arguments: &Bound<'_, PyDict>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let folder = self.0.get()?;
        let mut given = Arguments::of(given::fields(arguments)?, Spelling::Snake);
        let ask =
            |cancel, _silent: Sender<()>| folder.ask(name, &mut given, &Work { cancel, ..Work::default() });
        match run(py, cancel, ask, |()| Ok(()))? {
            Answer::Json(text) => json::plain(py, &text),
            Answer::Floats(values) => Ok(Bound::new(py, Floats::from(values))?.into_any()),
            Answer::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
        }
    }

    fn region(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Region> {
        let (folder, name) = (self.0.get()?, text("name", name)?);
        py.detach(|| folder.reader().region(&name)).map(Region).map_err(raise)
    }

    fn gates(&self, py: Python<'_>, layer: &Bound<'_, PyAny>) -> PyResult<Region> {
        let (folder, layer) = (self.0.get()?, unsigned("layer", layer)?);
        py.detach(|| folder.reader().gates(layer)).map(Region).map_err(raise)
    }

    fn slice<'py>(
        &self,
        py: Python<'py>,
        target: PathBuf,
        options: &Bound<'_, PyDict>,
        progress: Option<Bound<'py, PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (folder, options) = (self.0.get()?, given::options(Some(options), SliceOptions::read)?);
        let progress = progress::callback(progress, "slicing", "B")?;
        let work =
            |cancel, steps| folder.reader().slice(target, &options.cancel(cancel).progress(send(steps)));
        let report = run(py, cancel, work, |step| tell(py, progress.as_ref(), &step))?;
        VINDEX.one(py, "SliceReport", &SliceReport::from(&report))
    }

    fn tokenizer(&self, py: Python<'_>) -> PyResult<Tokenizer> {
        let folder = self.0.get()?;
        let browser = py.detach(|| {
            let browser = folder.browser()?;
            browser.tokenizer().map(drop).map(|()| browser)
        });
        Ok(Tokenizer(Owner::Vindex(browser.map_err(raise)?)))
    }
}

/// One tensor's place and numbers, for `skulk.VindexReader`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Region(skulk::Region);

#[pymethods]
impl Region {
    /// NumPy's view of the stored numbers, which keeps this alive; for types that NumPy has, too.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (kind, size) = match self.0.dtype() {
            DType::F32 => ("<f4", 4),
            DType::F16 => ("<f2", 2),
            other => return Err(PyAttributeError::new_err(format!("NumPy has no {other}"))),
        };
        // Rows may be padded: each number of the last dimension is `size` bytes from the next, each row `row_bytes`.
        let (mut strides, mut step) = (vec![size; self.0.shape().len()], self.0.row_bytes());
        for (stride, n) in strides.iter_mut().zip(self.0.shape()).rev().skip(1) {
            (*stride, step) = (step, step * n);
        }
        let view = PyDict::new(py);
        view.set_item("version", 3)?;
        view.set_item("shape", self.shape(py)?)?;
        view.set_item("strides", tuple(py, &strides)?)?;
        view.set_item("typestr", kind)?;
        view.set_item("data", (self.0.bytes().as_ptr().addr(), true))?;
        Ok(view)
    }

    fn dtype(&self) -> &'static str {
        self.0.dtype().label()
    }

    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        tuple(py, self.0.shape())
    }

    /// Some rows as f32, behind each other.
    fn rows(&self, py: Python<'_>, start: usize, stop: usize) -> PyResult<Floats> {
        let read = || {
            let rows = stop.min(self.0.rows()).saturating_sub(start);
            let mut values = vec![0.0; rows * self.0.row_len()];
            self.0.read_rows(start..stop, &mut values).map(|()| values)
        };
        py.detach(read).map(Floats::from).map_err(raise)
    }
}

/// Hands progress over to the thread that tells it.
pub(crate) fn send(steps: Sender<VindexProgress>) -> impl Fn(&VindexProgress) + Send + Sync {
    move |step| {
        // Nobody listens any more once the wait has ended with an exception.
        let _ = steps.send(step.clone());
    }
}

/// Calls back with how far some work is.
pub(crate) fn tell(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    step: &VindexProgress,
) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    progress
        .call1((VINDEX.one(py, "VindexProgress", &skulk_contract::VindexProgress::from(step))?,))
        .map(drop)
}

fn tuple<'py>(py: Python<'py>, shape: &[usize]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, shape)
}
