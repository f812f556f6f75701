//! How does Swift open and slice vindex folders? What is behind `VindexReader`.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use serde_json::json as object;
use skulk::browse::VindexBrowser;
use skulk::{Checkpoint, EngineOptions, Region, VindexReader};
use skulk_contract::options::SliceOptions;
use skulk_contract::{SliceReport, TensorInfo, VindexBands};

use crate::convert::{float_bytes, json, unsigned};
use crate::error::{Answer, closed, options};
use crate::extract::tell;
use crate::work::{RawCancel, RawProgress, run};

/// What is behind a `VindexReader`.
#[derive(uniffi::Object)]
pub struct RawVindex(RwLock<Option<Opened>>);

/// An open folder.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) reader: Arc<VindexReader>,
    threads: usize,
    /// Made for the first search, since it starts threads.
    browser: Arc<OnceLock<Arc<VindexBrowser>>>,
}

impl Opened {
    pub(crate) fn browser(&self) -> skulk::Result<Arc<VindexBrowser>> {
        if let Some(browser) = self.browser.get() {
            return Ok(Arc::clone(browser));
        }
        let browser = Arc::new(self.reader.browse(self.threads)?);
        Ok(Arc::clone(self.browser.get_or_init(|| browser)))
    }
}

/// A tensor's numbers.
#[derive(uniffi::Record)]
pub struct RawTensor {
    /// Its dimensions.
    pub shape: Vec<i64>,
    /// Its numbers, as floats.
    pub values: Vec<u8>,
}

fn tensor(region: &Region) -> skulk::Result<RawTensor> {
    let mut values = vec![0.0; region.rows() * region.row_len()];
    region.read_rows(0..region.rows(), &mut values)?;
    let shape = region.shape().iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect();
    Ok(RawTensor { shape, values: float_bytes(&values) })
}

impl RawVindex {
    pub(crate) fn opened(&self) -> Answer<Opened> {
        let opened = self.0.read().unwrap_or_else(PoisonError::into_inner);
        opened.clone().ok_or_else(|| closed("reader"))
    }
}

#[uniffi::export]
impl RawVindex {
    /// Opens a folder.
    #[uniffi::constructor]
    pub fn open(path: String, threads: Option<i64>) -> Answer<Arc<Self>> {
        let threads = threads.map(|n| unsigned("threads", n)).transpose()?;
        let threads = threads.unwrap_or_else(|| EngineOptions::default().threads);
        let reader = Arc::new(VindexReader::open(path)?);
        Ok(Arc::new(Self(RwLock::new(Some(Opened { reader, threads, browser: Arc::default() })))))
    }

    /// What does not change, as JSON.
    pub fn facts(&self) -> Answer<String> {
        let reader = self.opened()?.reader;
        let index = reader.index();
        json(&object!({
            "path": reader.path(),
            "lacks": reader.lacks(),
            "layers": index.feature_layers(),
            "bands": VindexBands::from(index.bands()),
        }))
    }

    /// The folder's index, as JSON.
    pub fn index(&self) -> Answer<String> {
        json(self.opened()?.reader.index())
    }

    /// The parts that the folder holds, as JSON.
    pub fn parts(&self) -> Answer<String> {
        json(&self.opened()?.reader.parts()?)
    }

    /// Every tensor, as JSON.
    pub fn tensors(&self) -> Answer<String> {
        json(&TensorInfo::all(&self.opened()?.reader))
    }

    /// The numbers of a tensor.
    pub async fn array(&self, name: String) -> Answer<RawTensor> {
        let reader = self.opened()?.reader;
        run(move || tensor(&reader.region(&name)?)).await
    }

    /// The gate vectors of a layer.
    pub async fn gates(&self, layer: i64) -> Answer<RawTensor> {
        let (reader, layer) = (self.opened()?.reader, unsigned("layer", layer)?);
        run(move || tensor(&reader.gates(layer)?)).await
    }

    /// Makes a slice; what it is made of, as JSON.
    pub async fn slice(
        &self,
        target: String,
        given: String,
        cancel: Arc<RawCancel>,
        progress: Option<Arc<dyn RawProgress>>,
    ) -> Answer<String> {
        let slice = options(&given, SliceOptions::read)?.cancel(cancel.0.clone()).progress(tell(progress));
        let reader = self.opened()?.reader;
        let report = run(move || reader.slice(target, &slice)).await?;
        json(&SliceReport::from(&report))
    }

    /// Lets go of it.
    pub fn close(&self) {
        let opened = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(opened);
    }
}
