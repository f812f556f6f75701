//! How does Python read, browse and slice vindex folders? What is behind `skulk.VindexReader`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use skulk::browse::VindexBrowser;
use skulk::vindex::{VindexPart, VindexProgress};
use skulk::{Checkpoint, DType, EngineOptions, VindexReader};
use skulk_contract::options::{
    DescribeOptions, Nearest, NearestOptions, RelationsOptions, SelectOptions, SliceOptions, WalkOptions,
};
use skulk_contract::{SliceReport, TensorInfo, VindexBands};

use crate::cancel::CancelToken;
use crate::convert::{floats, optional, token_ids, unsigned};
use crate::error::raise;
use crate::given;
use crate::handle::Handle;
use crate::json::{self, VINDEX};
use crate::progress;
use crate::tokenizer::{Owner, Tokenizer};
use crate::wait::run;

/// What is behind a `skulk.VindexReader`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Vindex(Handle<Arc<Open>>);

/// An open folder.
struct Open {
    reader: Arc<VindexReader>,
    threads: usize,
    /// Made for the first search, since it starts threads.
    browser: PyOnceLock<Arc<VindexBrowser>>,
}

impl Vindex {
    fn reader(&self) -> PyResult<Arc<VindexReader>> {
        self.0.get().map(|open| Arc::clone(&open.reader))
    }

    fn browser(&self, py: Python<'_>) -> PyResult<Arc<VindexBrowser>> {
        let open = self.0.get()?;
        let start = || open.reader.browse(open.threads).map(Arc::new).map_err(raise);
        open.browser.get_or_try_init(py, start).cloned()
    }

    /// Searches on a thread of its own, which `cancel` and Ctrl-C end.
    fn search<T: Send>(
        &self,
        py: Python<'_>,
        cancel: Option<&Bound<'_, CancelToken>>,
        search: impl FnOnce(&VindexBrowser, skulk::CancelToken) -> skulk::Result<T> + Send,
    ) -> PyResult<T> {
        let browser = self.browser(py)?;
        run(py, cancel, |cancel, _silent: Sender<()>| search(&browser, cancel), |()| Ok(()))
    }
}

#[pymethods]
impl Vindex {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, threads: Option<i128>) -> PyResult<Self> {
        let threads = optional("threads", threads)?;
        let reader = Arc::new(py.detach(|| VindexReader::open(path)).map_err(raise)?);
        let threads = threads.unwrap_or_else(|| EngineOptions::default().threads);
        Ok(Self(Handle::new(Arc::new(Open { reader, threads, browser: PyOnceLock::new() }))))
    }

    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn path(&self) -> PyResult<PathBuf> {
        Ok(self.reader()?.path().to_owned())
    }

    /// `index.json`, with what it leaves out.
    fn index(&self) -> PyResult<String> {
        json::write(self.reader()?.index())
    }

    fn lacks(&self) -> PyResult<Vec<&'static str>> {
        Ok(self.reader()?.lacks().into_iter().map(VindexPart::as_str).collect())
    }

    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let reader = self.reader()?;
        let parts = py.detach(|| reader.parts()).map_err(raise)?;
        VINDEX.many(py, "PartInfo", parts)
    }

    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let reader = self.reader()?;
        VINDEX.many(py, "TensorInfo", TensorInfo::all(&reader))
    }

    fn region(&self, py: Python<'_>, name: &str) -> PyResult<Region> {
        let reader = self.reader()?;
        py.detach(|| reader.region(name)).map(Region).map_err(raise)
    }

    fn gates(&self, py: Python<'_>, layer: i128) -> PyResult<Region> {
        let (reader, layer) = (self.reader()?, unsigned("layer", layer)?);
        py.detach(|| reader.gates(layer)).map(Region).map_err(raise)
    }

    fn slice<'py>(
        &self,
        py: Python<'py>,
        target: PathBuf,
        options: &Bound<'_, PyDict>,
        progress: Option<Bound<'py, PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (reader, options) = (self.reader()?, given::options(Some(options), SliceOptions::read)?);
        let progress = progress::callback(progress, "slicing", "B")?;
        let work = |cancel, steps| reader.slice(target, &options.cancel(cancel).progress(send(steps)));
        let report = run(py, cancel, work, |step| tell(py, progress.as_ref(), &step))?;
        VINDEX.one(py, "SliceReport", &SliceReport::from(&report))
    }

    fn tokenizer(&self, py: Python<'_>) -> PyResult<Tokenizer> {
        let browser = self.browser(py)?;
        py.detach(|| browser.tokenizer().map(drop)).map_err(raise)?;
        Ok(Tokenizer(Owner::Vindex(browser)))
    }

    fn layers(&self) -> PyResult<Vec<usize>> {
        Ok(self.reader()?.index().feature_layers())
    }

    fn bands<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        VINDEX.one(py, "VindexBands", &VindexBands::from(self.reader()?.index().bands()))
    }

    /// The embeddings of some tokens, behind each other.
    fn embed<'py>(&self, py: Python<'py>, tokens: Vec<i128>) -> PyResult<Bound<'py, PyBytes>> {
        let tokens = token_ids("token", tokens)?;
        let browser = self.browser(py)?;
        let embed = || tokens.iter().map(|token| browser.embed(*token)).collect::<skulk::Result<Vec<_>>>();
        Ok(floats(py, &py.detach(embed).map_err(raise)?.concat()))
    }

    fn nearest<'py>(
        &self,
        py: Python<'py>,
        query: Vec<f32>,
        options: &Bound<'_, PyDict>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let Nearest { k, layers } = given::options(Some(options), NearestOptions::read)?;
        let hits = self.search(py, cancel, |browser, cancel| {
            browser.nearest_in(layers.unwrap_or_else(|| browser.layers()), &query, k, &cancel)
        })?;
        VINDEX.many(py, "FeatureHit", hits)
    }

    fn scores<'py>(&self, py: Python<'py>, layer: i128, query: Vec<f32>) -> PyResult<Bound<'py, PyBytes>> {
        let layer = unsigned("layer", layer)?;
        let scores = self.search(py, None, |browser, _| {
            let mut scores = vec![0.0; browser.reader().gates(layer)?.rows()];
            browser.scores(layer, &query, &mut scores).map(|()| scores)
        })?;
        Ok(floats(py, &scores))
    }

    fn walk<'py>(
        &self,
        py: Python<'py>,
        prompt: &str,
        options: &Bound<'_, PyDict>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let options = given::options(Some(options), WalkOptions::read)?;
        let hits =
            self.search(py, cancel, |browser, cancel| browser.walk(prompt, &options.cancel(cancel)))?;
        VINDEX.many(py, "WalkHit", hits)
    }

    fn describe<'py>(
        &self,
        py: Python<'py>,
        entity: &str,
        options: &Bound<'_, PyDict>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = given::options(Some(options), DescribeOptions::read)?;
        let found =
            self.search(py, cancel, |browser, cancel| browser.describe(entity, &options.cancel(cancel)))?;
        VINDEX.one(py, "Description", &found)
    }

    fn feature<'py>(
        &self,
        py: Python<'py>,
        layer: i128,
        feature: i128,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (layer, feature) = (unsigned("layer", layer)?, unsigned("feature", feature)?);
        let found = self.search(py, None, |browser, _| browser.feature(layer, feature))?;
        found.map(|feature| VINDEX.one(py, "Feature", &feature)).transpose()
    }

    fn features<'py>(
        &self,
        py: Python<'py>,
        layer: i128,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let layer = unsigned("layer", layer)?;
        let found = self.search(py, cancel, |browser, cancel| {
            let features = browser.features(layer)?;
            features.map(|feature| cancel.check().and(feature)).collect::<skulk::Result<Vec<_>>>()
        })?;
        VINDEX.many(py, "Feature", found)
    }

    fn select<'py>(
        &self,
        py: Python<'py>,
        options: &Bound<'_, PyDict>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = given::options(Some(options), SelectOptions::read)?;
        let found = self.search(py, cancel, |browser, cancel| browser.select(&options.cancel(cancel)))?;
        VINDEX.one(py, "Selection", &found)
    }

    fn relations<'py>(
        &self,
        py: Python<'py>,
        options: &Bound<'_, PyDict>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = given::options(Some(options), RelationsOptions::read)?;
        let found = self.search(py, cancel, |browser, cancel| browser.relations(&options.cancel(cancel)))?;
        VINDEX.one(py, "Relations", &found)
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

    /// Some rows as little-endian f32, behind each other.
    fn rows<'py>(&self, py: Python<'py>, start: usize, stop: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = || {
            let rows = stop.min(self.0.rows()).saturating_sub(start);
            let mut values = vec![0.0; rows * self.0.row_len()];
            self.0.read_rows(start..stop, &mut values).map(|()| values)
        };
        Ok(floats(py, &py.detach(read).map_err(raise)?))
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
