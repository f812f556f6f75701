//! How does Swift write and check vindex folders? What is behind `extract` and `verifyVindex`.

use std::sync::Arc;

use skulk::extract::VindexWriter;
use skulk::vindex::{self, VindexProgress};
use skulk_contract::VerifyReport;
use skulk_contract::options::{ExtractOptions, VerifyOptions};

use crate::convert::json;
use crate::error::{Answer, options};
use crate::work::{RawCancel, RawProgress, run};

/// Tells each step.
pub(crate) fn tell(progress: Option<Arc<dyn RawProgress>>) -> impl Fn(&VindexProgress) + Send + Sync {
    move |step| {
        if let Some(progress) = &progress
            && let Ok(step) = json(&skulk_contract::VindexProgress::from(step))
        {
            progress.step(step);
        }
    }
}

/// Writes the model of a checkpoint as a vindex folder; what was extracted, as JSON.
#[uniffi::export]
pub async fn raw_extract(
    source: String,
    target: String,
    given: String,
    cancel: Arc<RawCancel>,
    progress: Option<Arc<dyn RawProgress>>,
) -> Answer<String> {
    let extract = options(&given, ExtractOptions::read)?.cancel(cancel.0.clone()).progress(tell(progress));
    let report = run(move || {
        let checkpoint = skulk::open_checkpoint(source)?;
        VindexWriter::new(&*checkpoint, extract)?.write(target)
    });
    json(&report.await?)
}

/// Verifies a vindex folder; what was found, as JSON.
#[uniffi::export]
pub async fn raw_verify_vindex(
    path: String,
    given: String,
    cancel: Arc<RawCancel>,
    progress: Option<Arc<dyn RawProgress>>,
) -> Answer<String> {
    let verify = options(&given, VerifyOptions::read)?.cancel(cancel.0.clone()).progress(tell(progress));
    let report = run(move || vindex::verify_vindex(path, &verify)).await?;
    json(&VerifyReport::from(&report))
}
