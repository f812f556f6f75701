//! Are rows joined, is nobody forgotten, and does the thread outlive what computes?

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Elements of a row.
const HIDDEN: usize = 16;
/// Rows that are computed together at most.
const MOST: usize = 4;

/// Gives each row times its expert, a job whenever the test lets it, and tells which jobs there were.
struct Told {
    jobs: Mutex<Sender<(usize, usize)>>,
    go: Arc<Mutex<Receiver<()>>>,
}

struct ToldLine {
    jobs: Sender<(usize, usize)>,
    go: Arc<Mutex<Receiver<()>>>,
    out: Vec<f32>,
}

impl FfnService for Told {
    fn name(&self) -> &str {
        "told"
    }

    fn serves(&self, _: LayerIdx) -> Range<usize> {
        0..1
    }

    fn computes(&self) -> String {
        "told".to_owned()
    }

    fn line(&self, max_rows: usize) -> Result<Box<dyn FfnLine>> {
        assert_eq!(max_rows, MOST);
        let jobs = self.jobs.lock().unwrap().clone();
        Ok(Box::new(ToldLine { jobs, go: Arc::clone(&self.go), out: Vec::new() }))
    }
}

impl FfnLine for ToldLine {
    fn begin(&mut self, job: &FfnJob<'_>, _: &StepCx<'_>) -> Result<()> {
        self.jobs.send((job.layer.0, job.rows())).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        assert_ne!(job.layer.0, 2, "this layer panics");
        if job.layer.0 == 1 {
            return Err(Error::new(ErrorKind::EngineFailed, "this layer fails"));
        }
        let rows = job.pairs.iter().flat_map(|pair| {
            let row = &job.input[pair.row as usize * HIDDEN..][..HIDDEN];
            row.iter().map(move |value| value * 2.0)
        });
        self.out = rows.collect();
        Ok(())
    }

    fn wait(&mut self, out: &mut [f32], _: &StepCx<'_>) -> Result<()> {
        out.copy_from_slice(&self.out);
        Ok(())
    }
}

struct Running {
    queue: Arc<Queue>,
    jobs: Receiver<(usize, usize)>,
    go: Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Running {
    fn new(most: usize) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models/stories260K");
        let checkpoint = crate::weights::open_checkpoint(folder).unwrap();
        let mut arch = ArchSpec::from_checkpoint(&*checkpoint).unwrap();
        arch.hidden_size = HIDDEN;
        let ((to_jobs, jobs), (go, from_go)) = (channel(), channel());
        let service = Told { jobs: Mutex::new(to_jobs), go: Arc::new(Mutex::new(from_go)) };
        let service: Arc<dyn FfnService> = Arc::new(service);
        let metrics = Arc::new(Metrics::new(Arc::clone(&service)));
        let queue = Arc::new(Queue::new(most, Arc::clone(&metrics)));
        let worker = Worker {
            queue: Arc::clone(&queue),
            service,
            arch: Arc::new(arch),
            max_rows: MOST,
            cancel: CancelToken::new(),
            metrics,
        };
        Self { queue, jobs, go, thread: std::thread::spawn(move || worker.run()) }
    }

    /// Asks for these rows of a layer, which are all this number.
    fn ask(&self, layer: usize, rows: usize, value: f32) -> oneshot::Receiver<Result<Done>> {
        let rows = Arc::new(vec![value; rows * HIDDEN]);
        let piece = Piece { layer, form: Form::Block, rows, pairs: Vec::new() };
        self.queue.push(vec![piece]).ok().unwrap().remove(0)
    }

    /// The next job, which may now be computed.
    fn job(&self) -> (usize, usize) {
        let job = self.jobs.recv().unwrap();
        self.go.send(()).unwrap();
        job
    }

    fn end(self) {
        self.queue.close();
        self.thread.join().unwrap();
    }
}

fn is(reply: oneshot::Receiver<Result<Done>>, rows: usize, value: f32) {
    assert_eq!(reply.blocking_recv().unwrap().unwrap().rows, vec![value * 2.0; rows * HIDDEN]);
}

#[test]
fn rows_that_wait_for_the_same_are_joined_and_large_ones_hold_up_nobody() {
    let running = Running::new(8);
    let first = running.ask(0, 1, 1.0);
    let begun = running.jobs.recv().unwrap();
    let (large, other, second) = (running.ask(0, 6, 2.0), running.ask(3, 2, 3.0), running.ask(0, 1, 4.0));
    running.go.send(()).unwrap();
    let jobs = [begun, running.job(), running.job(), running.job()];
    // The large one's rest comes behind what waited before, joined with it.
    assert_eq!(jobs, [(0, 1), (0, 4), (3, 2), (0, 3)]);
    is(first, 1, 1.0);
    is(large, 6, 2.0);
    is(other, 2, 3.0);
    is(second, 1, 4.0);
    running.end();
}

#[test]
fn failures_and_panics_are_told_and_outlived() {
    let running = Running::new(8);
    for (layer, kind) in [(1, ErrorKind::EngineFailed), (2, ErrorKind::Internal)] {
        let reply = running.ask(layer, 1, 1.0);
        assert_eq!(running.job(), (layer, 1));
        let error = reply.blocking_recv().unwrap().err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let reply = running.ask(0, 1, 1.0);
    running.job();
    is(reply, 1, 1.0);
    running.end();
}

#[test]
fn who_has_gone_is_not_computed_and_leaves_room() {
    let running = Running::new(2);
    let first = running.ask(0, 1, 1.0);
    let begun = running.jobs.recv().unwrap();
    drop((running.ask(3, 1, 2.0), running.ask(3, 1, 2.0)));
    let piece = || Piece { layer: 0, form: Form::Block, rows: Arc::default(), pairs: Vec::new() };
    assert!(matches!(running.queue.push(vec![piece()]), Err(Refused::Full)));
    running.go.send(()).unwrap();
    is(first, 1, 1.0);
    let last = loop {
        // Until the thread has seen that they have gone.
        match running.queue.push(vec![Piece { rows: Arc::new(vec![5.0; HIDDEN]), ..piece() }]) {
            Ok(mut replies) => break replies.remove(0),
            Err(_) => std::thread::yield_now(),
        }
    };
    assert_eq!((begun, running.job()), ((0, 1), (0, 1)));
    is(last, 1, 5.0);
    let queue = Arc::clone(&running.queue);
    running.end();
    assert!(matches!(queue.push(vec![piece()]), Err(Refused::Stopping)));
}
