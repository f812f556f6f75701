//! How does Swift serve a model's blocks to others? What is behind `serve` and `Server`.

use std::sync::Arc;
use std::time::Duration;

use skulk_contract::functions;
use skulk_contract::options::{ServeOptions, grace};

use crate::error::{Answer, options};
use crate::work::{RawCancel, run};

/// What is behind a `Server`.
#[derive(uniffi::Object)]
pub struct RawServer(Arc<skulk::Server>);

#[uniffi::export]
impl RawServer {
    /// Serves a checkpoint.
    #[uniffi::constructor]
    pub async fn serve(path: String, given: String, cancel: Arc<RawCancel>) -> Answer<Arc<Self>> {
        let serve = options(&given, ServeOptions::read)?.cancel(cancel.0.clone());
        let server = run(move || functions::serve(path.as_ref(), &serve)).await?;
        Ok(Arc::new(Self(Arc::new(server))))
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.0.address().to_string()
    }

    /// Numbers in the text format of OpenMetrics.
    pub fn metrics(&self) -> String {
        self.0.metrics()
    }

    /// Stops it, within so many seconds.
    pub async fn stop(&self, seconds: f64) -> Answer<()> {
        let (server, grace) = (Arc::clone(&self.0), grace(seconds)?);
        run(move || {
            server.stop(grace);
            Ok(())
        })
        .await
    }

    /// Waits until it has stopped.
    pub async fn wait(&self) -> Answer<()> {
        let server = Arc::clone(&self.0);
        run(move || {
            server.wait();
            Ok(())
        })
        .await
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        // Threads that wait for it hold it, too.
        self.0.stop(Duration::ZERO);
    }
}
