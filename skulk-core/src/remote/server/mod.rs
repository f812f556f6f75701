//! How are blocks and experts served to other machines? Over HTTP/1.1 and gRPC, as LARQL's servers do, from this
//! process.

mod accept;
mod batch;
mod connection;
mod ends;
mod experts;
mod grpc;
mod guard;
mod json;
mod listen;
mod metrics;
mod options;
mod reply;
mod routes;
mod served;
mod walk;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use self::batch::{Queue, Worker};
use self::metrics::Metrics;
pub use self::options::ServeOptions;
use self::served::{Running, Served};
use super::address::Address;
use super::{facts, tls};
use crate::arch::ArchSpec;
use crate::cancel::CancelToken;
use crate::engine::ffn::experts_of;
use crate::engine::{FfnService, LoadCx};
use crate::engines::CpuFfn;
use crate::error::{Error, ErrorKind, Result};
use crate::weights::Checkpoint;

/// When a server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Never,
    /// What is being served may be finished until then.
    At(Instant),
}

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    connections: usize,
    body: usize,
    header: Duration,
    read: Duration,
    idle: Duration,
}

/// Serves a checkpoint's feed-forward blocks and experts with LARQL's routes, so that clients of LARQL and this library's
/// can have them computed here: on threads of this process, from where the weights are stored.
///
/// ```
/// use std::time::Duration;
///
/// use skulk::remote::{ServeOptions, serve};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
/// let checkpoint = skulk::open_checkpoint(path)?;
/// let options = ServeOptions::default().listen("http://127.0.0.1:0".parse()?).layers(0..3);
/// let server = serve(&*checkpoint, &options)?;
/// println!("{}", server.address());
/// server.stop(Duration::from_secs(10));
/// # Ok::<(), skulk::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for impossible options, an address that cannot be listened on, and one that other
/// machines reach without a key or certificates; as [`CpuFfn::load`] for what is wrong with layers, experts and weights.
pub fn serve(checkpoint: &dyn Checkpoint, options: &ServeOptions) -> Result<Server> {
    options.check()?;
    let tls = match &options.identity {
        Some(identity) => Some(TlsAcceptor::from(tls::server(identity, options.clients.as_ref())?)),
        None => None,
    };
    // An address that is taken is known before weights are loaded.
    let (bound, address) = listen::bind(&options.listen)?;
    let arch = Arc::new(ArchSpec::from_checkpoint(checkpoint)?);
    let shares = shares(&arch, options)?;
    let cx = LoadCx::new(&options.cancel, &|| ());
    let service = Arc::new(CpuFfn::load(checkpoint, &arch, &shares, &options.engine_options, &cx)?);
    let metrics = Arc::new(Metrics::new(Arc::clone(&service) as Arc<dyn FfnService>));
    let queue = Arc::new(Queue::new(options.queue, Arc::clone(&metrics)));
    let (stop, stopped) = watch::channel(Stop::Never);
    let cancel = CancelToken::new();
    let running = Running {
        arch: Arc::clone(&arch),
        service: Arc::clone(&service),
        queue: Arc::clone(&queue),
        metrics: Arc::clone(&metrics),
        stop: stopped.clone(),
        cancel: cancel.clone(),
    };
    let served = Arc::new(Served::new(checkpoint, options, running)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|e| unstarted("the network").with_source(e))?;
    let worker = Worker {
        queue: Arc::clone(&queue),
        service,
        arch,
        max_rows: options.max_rows,
        cancel: cancel.clone(),
        metrics: Arc::clone(&metrics),
    };
    let worker = spawn("skulk-serve-compute", move || worker.run())?;
    let ending = Ending { queue, cancel, worker: Some(worker) };
    let thread = spawn("skulk-serve", move || {
        // Whatever ends this thread ends the other one.
        let _ending = ending;
        runtime.block_on(async {
            // What the system gave is the runtime's or nobody's.
            if let Ok(listener) = bound.start() {
                accept::accept(listener, tls, served, stopped).await;
            }
        });
    })?;
    Ok(Server { address, metrics, stop, thread: Mutex::new(Some(thread)) })
}

/// Which experts of which layers are served.
fn shares(arch: &ArchSpec, options: &ServeOptions) -> Result<Vec<(Range<usize>, Range<usize>)>> {
    let layers = options.layers.clone().unwrap_or(0..arch.n_layers());
    if layers.is_empty() || layers.end > arch.n_layers() {
        let message = format!(
            "expected some of the layers 0 to {}, found {} to {}",
            arch.n_layers(),
            layers.start,
            layers.end
        );
        return Err(
            Error::argument("layers", message).with_hint("name layers of the model, or leave the option out")
        );
    }
    let mut shares = Vec::new();
    for layer in layers {
        let spec = &arch.layers[layer];
        let experts = match (&options.experts, spec.ffn.experts) {
            (Some(experts), Some(_)) => experts.clone(),
            _ => 0..experts_of(spec),
        };
        if experts_of(spec) > 0 {
            shares.push((layer..layer + 1, experts));
        }
    }
    match shares.is_empty() {
        false => Ok(shares),
        true => Err(Error::argument("layers", "expected layers with feed-forward blocks, found none")
            .with_hint("name layers that have blocks")),
    }
}

fn unstarted(what: &str) -> Error {
    Error::new(
        ErrorKind::OutOfMemory,
        format!("expected the system to give {what} a thread, found that it cannot"),
    )
    .with_hint("end other programs, or raise the limits of this one")
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|e| unstarted("the server").with_source(e))
}

/// Ends the thread that computes.
struct Ending {
    queue: Arc<Queue>,
    cancel: CancelToken,
    worker: Option<JoinHandle<()>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.queue.close();
        self.cancel.cancel();
        if let Some(worker) = self.worker.take() {
            worker.join().ok();
        }
    }
}

/// A running server. Dropping it stops it at once.
pub struct Server {
    address: Address,
    metrics: Arc<Metrics>,
    stop: watch::Sender<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What `GET /v1/metrics` gives: numbers in the text format of OpenMetrics, which Prometheus reads.
    pub fn metrics(&self) -> String {
        self.metrics.text()
    }

    /// Stops it: no connection is taken any more, requests that were begun are finished within `grace`, and what is
    /// left then is cut off. Returns when all has ended. Can be called again, for less grace.
    pub fn stop(&self, grace: Duration) {
        let until = Instant::now().checked_add(grace);
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(u64::from(u32::MAX)));
        self.stop.send_modify(|stop| {
            *stop = match *stop {
                Stop::At(sooner) if sooner < until => Stop::At(sooner),
                _ => Stop::At(until),
            }
        });
        self.wait();
    }

    /// Waits until it has stopped, as another thread wants.
    pub fn wait(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            thread.join().ok();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
