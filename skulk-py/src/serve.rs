//! How does Python serve a model's blocks to others? `skulk.serve` and `skulk.Server`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyRange, PyTuple};
use skulk_contract::functions;
use skulk_contract::options::{ServeOptions, grace};

use crate::cancel::CancelToken;
use crate::error::raise;
use crate::given;
use crate::here::Here;
use crate::wait::{attempt, beside};

/// A server of feed-forward blocks and experts. Made by `skulk.serve`. Leaving its `with` block, or dropping it, stops it at
/// once. Any thread may use it.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Server(Here<Arc<skulk::Server>>);

/// Serves the feed-forward blocks and experts of the checkpoint at `path` to other processes and machines, on threads of its
/// own: `Model.load` with `ffn_at` has them computed there.
///
/// `options` are those of `skulk.options.ServeOptions`. `cancel` and Ctrl-C end loading within one layer.
#[pyfunction]
#[pyo3(signature = (path, *, cancel=None, **options), text_signature = "(path, *, listen='http://127.0.0.1:0', layers=None, experts=None, key=None, identity=None, clients=None, ffn_budget=None, threads=None, precision='fast', memory='auto', max_rows=256, queue=256, max_connections=256, max_body=67108864, cancel=None)")]
pub(crate) fn serve(
    py: Python<'_>,
    path: PathBuf,
    cancel: Option<&Bound<'_, CancelToken>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Server> {
    let options = options.map(spelled).transpose()?;
    let options = given::options(options.as_ref(), ServeOptions::read)?;
    let load = |cancel, _silent: Sender<()>| functions::serve(&path, &options.cancel(cancel)).map(Arc::new);
    attempt(py, cancel, load, |()| Ok(()))?.map(Here::new).map(Server).map_err(raise)
}

/// Options with ranges as the library reads them.
fn spelled<'py>(given: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    let options = given.copy()?;
    for (name, value) in given {
        if value.is_instance_of::<PyRange>() && value.getattr("step")?.eq(1)? {
            let span = PyDict::new(given.py());
            span.set_item("start", value.getattr("start")?)?;
            span.set_item("end", value.getattr("stop")?)?;
            options.set_item(name, span)?;
        }
    }
    Ok(options)
}

#[pymethods]
impl Server {
    /// Where it listens, as `ffn_at` takes it.
    #[getter]
    fn address(&self) -> PyResult<String> {
        Ok(self.0.get()?.address().to_string())
    }

    /// Numbers of what it did and holds, in the text format of OpenMetrics.
    #[getter]
    fn metrics(&self) -> PyResult<String> {
        Ok(self.0.get()?.metrics())
    }

    /// Stops it: no connection is taken any more, requests that were begun are finished within `grace` seconds, and what is
    /// left then is cut off. Returns when all has ended. Ctrl-C ends waiting for it.
    #[pyo3(signature = (grace=0.0))]
    fn stop(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let grace = self::grace(grace).map_err(raise)?;
        self.waiting(py, move |server| server.stop(grace))
    }

    /// Waits until it has stopped, as another thread wants. Ctrl-C ends waiting, and the server goes on.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.waiting(py, skulk::Server::wait)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.end(py);
    }

    fn __repr__(&self) -> String {
        match self.0.here() {
            Some(server) => format!("<skulk.Server: {}>", server.address()),
            None => "<skulk.Server: of another process>".to_owned(),
        }
    }
}

impl Server {
    /// Stops it at once.
    fn end(&self, py: Python<'_>) {
        if let Some(server) = self.0.here() {
            py.detach(|| server.stop(Duration::ZERO));
        }
    }

    /// Waits for `work`. Ctrl-C ends only that.
    fn waiting(&self, py: Python<'_>, work: impl FnOnce(&skulk::Server) + Send + 'static) -> PyResult<()> {
        let server = Arc::clone(self.0.get()?);
        beside(py, move || {
            work(&server);
            Ok(())
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Threads that wait for it hold it, too. Other threads may run meanwhile; without an interpreter there are none.
        Python::try_attach(|py| self.end(py));
    }
}
