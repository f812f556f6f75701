//! Does a model whose blocks and experts servers compute say what it says alone, in every bit? And what if they fail?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use skulk::engine::{FfnJob, FfnLine, FfnPair, FfnService, StepCx};
use skulk::plan::{ExpertShard, NodeId};
use skulk::remote::wire::WireType;
use skulk::remote::{
    Address, ConnectOptions, Identity, RemoteFfn, Replicas, Roots, ServeOptions, Server, measure_link, serve,
};
use skulk::{
    ByteSize, CancelToken, EngineId, EngineOptions, Error, ErrorKind, GenerateOptions, LoadOptions, Model,
    Placement, Precision, Retry, open_checkpoint,
};

use super::fault::{Fault, Proxy};
use super::model_path;

pub(super) const OPENING: &str = "Once upon a time, there was a";

pub(super) fn computing() -> EngineOptions {
    EngineOptions::default().threads(1)
}

pub(super) fn serving(name: &str, options: ServeOptions) -> Server {
    serve(&*open_checkpoint(model_path(name)).unwrap(), &options.engine_options(computing())).unwrap()
}

pub(super) fn loading() -> LoadOptions {
    LoadOptions::default().engine_options(computing())
}

pub(super) fn open(name: &str, options: &LoadOptions) -> Model {
    Model::open(model_path(name), options).unwrap()
}

pub(super) fn greedy(n: usize) -> GenerateOptions {
    GenerateOptions::default().max_tokens(n).ignore_eos(true)
}

/// What it expects behind each of some tokens, and how it goes on.
pub(super) fn said(model: &Model) -> (Vec<f32>, Vec<skulk::TokenId>) {
    let tokens = model.tokenizer().encode(OPENING, true).unwrap();
    let logits = model.logits(tokens, &skulk::CancelToken::new()).unwrap();
    (logits.into_iter().collect(), model.generate(OPENING, greedy(12)).unwrap().output().unwrap().ids)
}

fn at(server: &Server) -> LoadOptions {
    loading().ffn_at(server.address().clone())
}

#[test]
fn a_server_of_all_blocks_changes_no_bit() {
    for name in ["stories260K", "gemma3", "mixtral", "glm4_moe", "gemma4_moe", "gpt_oss", "llama4"] {
        let alone = said(&open(name, &loading()));
        let server = serving(name, ServeOptions::default());
        assert_eq!(said(&open(name, &at(&server))), alone, "{name}");
        // Through a socket of the system's, too.
        let folder = tempfile::tempdir().unwrap();
        let listen = format!("unix://{}", folder.path().join("s").display());
        let server = serving(name, ServeOptions::default().listen(listen.parse().unwrap()));
        assert_eq!(said(&open(name, &at(&server))), alone, "{name}");
    }
}

/// By layers, by experts, by both; some of it here.
#[test]
fn any_partition_over_servers_changes_no_bit() {
    let name = "glm4_moe";
    let here = open(name, &loading());
    let (alone, layers) = (said(&here), here.arch().n_layers());
    let n = here.arch().layers.iter().find_map(|layer| layer.ffn.experts).unwrap().n_experts;
    let part = ServeOptions::default;
    for parts in [
        vec![part().layers(0..1), part().layers(1..layers)],
        vec![part().experts(0..1), part().experts(1..n)],
        vec![part().experts(0..n / 2), part().experts(n / 2..n - 1)],
        vec![part().layers(1..2).experts(1..2)],
        // Some have the same.
        vec![part().experts(0..n - 1), part().experts(1..n), part().layers(0..1)],
    ] {
        let servers: Vec<_> = parts.into_iter().map(|options| serving(name, options)).collect();
        let connect = |options: LoadOptions, server: &Server| options.ffn_at(server.address().clone());
        let options = servers.iter().fold(loading(), connect);
        let model = open(name, &options);
        assert_eq!(said(&model), alone, "{:?}", model.placement().experts());
        // In a batch, as well.
        let several = model.generate_batch([OPENING; 5], &greedy(12));
        for output in several {
            assert_eq!(output.unwrap().ids, alone.1);
        }
    }
}

/// A placement with nodes that only compute experts, as a planner makes it.
#[test]
fn a_placement_says_where_its_nodes_are() {
    let name = "mixtral";
    let alone = open(name, &loading());
    let (layers, n) = (alone.arch().n_layers(), alone.arch().layers[0].ffn.experts.unwrap().n_experts);
    let one = serving(name, ServeOptions::default().experts(0..n / 2));
    let other = serving(name, ServeOptions::default().experts(n / 2..n));
    let cpu = EngineId::new("cpu");
    let shard =
        |node: &str, experts| ExpertShard::new(NodeId::new(node), &cpu, 0..layers, n).experts(experts);
    let experts = vec![shard("one", 0..n / 2), shard("other", n / 2..n)];
    let placement = Placement::even(layers, 1, &cpu).unwrap().with_experts(experts).unwrap();
    let whole = placement.clone().with_address("one", one.address().to_string());
    let whole = whole.with_address("other", other.address().to_string());
    // What is written and read again, too.
    let read = Placement::from_json(&whole.to_json()).unwrap();
    assert_eq!(read.addresses(), whole.addresses());
    for placement in [whole, read] {
        let model = open(name, &loading().placement(placement));
        assert_eq!(said(&model), said(&alone));
        let device = &model.stages()[0].device;
        assert!(device.contains(&one.address().to_string()) && device.contains("skulk at"), "{device}");
    }
    // One of them is known only to the options; without it loading says what is missing.
    let part = placement.with_address("one", one.address().to_string());
    let error = Model::open(model_path(name), &loading().placement(part.clone())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
    assert!(error.message().contains("`other`"), "{error}");
    let model = open(name, &loading().placement(part).address("other", other.address().to_string()));
    assert_eq!(said(&model), said(&alone));
}

#[test]
fn fewer_bits_on_the_wire_change_little_and_the_same_in_any_chunk() {
    for name in ["gemma3", "mixtral"] {
        let (alone, server) = (said(&open(name, &loading())), serving(name, ServeOptions::default()));
        let most = alone.0.iter().fold(0f32, |most, logit| most.max(logit.abs()));
        // Halves lose 2⁻¹² of a number, integers 1/254 of a row's largest; layers and sums of rows make more of it.
        for (wire, parts) in [(WireType::F32, 0.0), (WireType::F16, 5e-3), (WireType::I8, 0.1)] {
            let connect = || ConnectOptions::default().wire(wire);
            let [whole, single] =
                [64, 1].map(|chunk| said(&open(name, &at(&server).connect(connect()).prefill_chunk(chunk))));
            assert_eq!(whole, single, "{name} {wire}");
            let off = whole.0.iter().zip(&alone.0).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            println!("{name} {wire}: {} of the largest logit", off / most);
            assert!(off <= parts * most, "{name} {wire}: {off} of {most}");
            assert!(wire == WireType::F32 || name == "mixtral" && wire == WireType::I8 || off > 0.0);
        }
    }
}

#[test]
fn what_serves_something_else_is_not_taken() {
    let server = serving("mixtral", ServeOptions::default().key("right"));
    let reach = |name: &str, options: &ConnectOptions| {
        RemoteFfn::connect(server.address(), &*open_checkpoint(model_path(name)).unwrap(), options).map(drop)
    };
    let key = ConnectOptions::default().key("right");
    reach("mixtral", &key).unwrap();
    for (name, options, words) in [
        ("mixtral", &ConnectOptions::default(), "401"),
        ("mixtral", &ConnectOptions::default().key("wrong"), "401"),
        ("gemma3", &key, "rows of"),
    ] {
        let error = reach(name, options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        assert!(error.message().contains(words) && error.retry() == Retry::AfterReplan, "{error}");
    }
    // The same sizes, but other weights.
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(model_path("mixtral")).unwrap() {
        let file = file.unwrap().path();
        let mut bytes = std::fs::read(&file).unwrap();
        if file.extension().is_some_and(|kind| kind == "safetensors") {
            let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize + 8;
            bytes[header..].iter_mut().for_each(|byte| *byte ^= 1);
        }
        std::fs::write(folder.path().join(file.file_name().unwrap()), bytes).unwrap();
    }
    let changed = open_checkpoint(folder.path()).unwrap();
    let error = RemoteFfn::connect(server.address(), &*changed, &key).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::PeerFailed && error.message().contains("expected weights"), "{error}");
    // Nobody is there.
    let gone = server.address().clone();
    drop(server);
    let error = RemoteFfn::connect(&gone, &*changed, &key).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
    // A key that no header has.
    let key = ConnectOptions::default().key("line\nbreak");
    assert_eq!(
        RemoteFfn::connect(&gone, &*changed, &key).map(drop).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

/// Until an error, or the end.
pub(super) fn run(model: &Model, n: usize) -> (Vec<skulk::TokenId>, Option<Error>) {
    let mut ids = Vec::new();
    for event in model.generate(OPENING, greedy(n)).unwrap() {
        match event {
            Ok(event) => ids.extend(event.token.map(|token| token.id)),
            Err(error) => return (ids, Some(error)),
        }
    }
    (ids, None)
}

/// What happens to a server without a replica ends a generation with an error, and the next one goes through.
#[test]
fn faults_are_errors_and_nothing_else() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default());
    let proxy = Proxy::to(server.address());
    // Long enough for what is not failing, on a busy machine, too.
    let connect = ConnectOptions::default().timeout(Duration::from_secs(2));
    let model = open(name, &loading().ffn_at(proxy.address()).connect(connect));
    let (alone, _) = run(&open(name, &loading()), 12);
    assert_eq!(run(&model, 12).0, alone);
    for (fault, kind) in [
        (Fault::Refuse, ErrorKind::PeerLost),
        (Fault::Silence, ErrorKind::PeerLost),
        (Fault::CutAfter(40), ErrorKind::PeerLost),
        (Fault::CutAfter(500), ErrorKind::PeerLost),
        (Fault::Garbage, ErrorKind::PeerLost),
    ] {
        for requests in [0, 3] {
            proxy.fault_after(requests, fault);
            let began = Instant::now();
            let (ids, error) = run(&model, 12);
            let error = error.unwrap_or_else(|| panic!("{fault:?} was not noticed"));
            assert_eq!((error.kind(), error.retry()), (kind, Retry::AfterReplan), "{fault:?} {error}");
            assert_eq!(ids, alone[..ids.len()]);
            // A step, and its repetition for the session alone.
            assert!(began.elapsed() < Duration::from_secs(60));
            proxy.heal();
            assert_eq!(run(&model, 12).0, alone, "{fault:?}");
        }
    }
}

/// One answer that is cut off is asked for again, and nobody sees it.
#[test]
fn a_connection_that_ends_between_jobs_is_opened_again() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default().idle_timeout(Duration::from_millis(150)));
    let model = open(name, &at(&server));
    let (alone, _) = run(&open(name, &loading()), 6);
    for _ in 0..3 {
        assert_eq!(run(&model, 6).0, alone);
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn a_server_with_other_weights_is_noticed_when_it_comes_back() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default());
    let proxy = Proxy::to(server.address());
    let model = open(name, &loading().ffn_at(proxy.address()));
    let (alone, _) = run(&model, 6);
    let other = serving("mixtral", ServeOptions::default().layers(0..1));
    proxy.move_to(other.address());
    let (_, error) = run(&model, 6);
    let error = error.unwrap();
    assert!(error.kind() == ErrorKind::PeerFailed && error.message().contains("others"), "{error}");
    proxy.move_to(server.address());
    assert_eq!(run(&model, 6).0, alone);
}

#[test]
fn a_replica_takes_over_with_the_same_text() {
    let name = "glm4_moe";
    let (first, second) = (serving(name, ServeOptions::default()), serving(name, ServeOptions::default()));
    let proxy = Proxy::to(first.address());
    let connect = ConnectOptions::default().timeout(Duration::from_secs(2));
    let options = loading().ffn_at(proxy.address()).ffn_at(second.address().clone()).connect(connect);
    let model = open(name, &options);
    let (alone, _) = run(&open(name, &loading()), 16);
    for fault in [
        Fault::Refuse,
        Fault::Silence,
        Fault::CutAfter(300),
        Fault::Garbage,
        Fault::Slow(Duration::from_millis(3000)),
    ] {
        for requests in [0, 5] {
            proxy.fault_after(requests, fault);
            let (ids, error) = run(&model, 16);
            assert!(error.is_none(), "{fault:?} {}", error.unwrap());
            assert_eq!(ids, alone, "{fault:?}");
            proxy.heal();
        }
    }
    // Both are gone: then it is an error.
    proxy.fault_after(0, Fault::Refuse);
    drop(second);
    assert_eq!(run(&model, 16).1.unwrap().kind(), ErrorKind::PeerLost);
}

/// A slow owner is not waited for: another one is asked, and the first answer counts.
#[test]
fn a_slow_owner_is_hedged() {
    let name = "mixtral";
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let (first, second) = (serving(name, ServeOptions::default()), serving(name, ServeOptions::default()));
    let proxy = Proxy::to(first.address());
    let service = |address: &Address| {
        Arc::new(RemoteFfn::connect(address, &*checkpoint, &ConnectOptions::default()).unwrap()) as _
    };
    let both = Replicas::new([service(&proxy.address()), service(second.address())]).unwrap();
    let both = both.hedge_after(Some(Duration::from_millis(30)));
    let arch = skulk::arch::ArchSpec::from_checkpoint(&*checkpoint).unwrap();
    let (layers, n) = (arch.n_layers(), arch.layers[0].ffn.experts.unwrap().n_experts);
    let cpu = EngineId::new("cpu");
    let there = ExpertShard::new(NodeId::new("shed"), &cpu, 0..layers, n);
    let placement = Placement::even(layers, 1, &cpu).unwrap().with_experts(vec![there]).unwrap();
    let model = open(name, &loading().placement(placement).ffn_service("shed", Arc::new(both)));
    let (alone, _) = run(&open(name, &loading()), 4);
    proxy.fault_after(0, Fault::Slow(Duration::from_secs(20)));
    let began = Instant::now();
    let (ids, error) = run(&model, 4);
    assert!(error.is_none(), "{}", error.unwrap());
    assert_eq!(ids, alone);
    // Of the slow one every job would have taken 20 seconds.
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// Also where it takes a connection, and then says nothing.
#[test]
fn a_silent_owner_is_hedged_while_it_is_connected_to() {
    let name = "mixtral";
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let (first, second) = (serving(name, ServeOptions::default()), serving(name, ServeOptions::default()));
    let proxy = Proxy::to(first.address());
    let long = Duration::from_secs(40);
    let options = ConnectOptions::default().timeout(long).connect_timeout(long);
    let service =
        |address: &Address| Arc::new(RemoteFfn::connect(address, &*checkpoint, &options).unwrap()) as _;
    let both = Replicas::new([service(&proxy.address()), service(second.address())]).unwrap();
    let alone: Arc<dyn FfnService> = service(second.address());
    let width = skulk::arch::ArchSpec::from_checkpoint(&*checkpoint).unwrap().hidden_size;
    let (row, pairs, never) = (vec![0.5; width], [FfnPair::new(0, 1, 1.0)], skulk::CancelToken::new());
    let job = FfnJob::new(skulk::LayerIdx(0), width, &row, &pairs).residual(&row);
    let computed = |service: &dyn FfnService| {
        let (mut line, mut out) = (service.line(1).unwrap(), vec![0.0; width]);
        line.begin(&job, &StepCx::new(&never)).unwrap();
        line.wait(&mut out, &StepCx::new(&never)).unwrap();
        out
    };
    let expected = computed(&*alone);
    proxy.fault_after(0, Fault::Silence);
    let began = Instant::now();
    assert_eq!(computed(&both), expected);
    // The silent one would have been waited for until it had had its time.
    assert!(began.elapsed() < Duration::from_secs(30));
}

/// An owner that another one overtook is not asked first for each job.
#[test]
fn who_was_overtaken_is_asked_last_for_a_while() {
    #[derive(Clone)]
    struct Owner {
        begun: Arc<AtomicUsize>,
        answers: bool,
    }
    impl FfnService for Owner {
        fn name(&self) -> &str {
            "owner"
        }
        fn serves(&self, _: skulk::LayerIdx) -> std::ops::Range<usize> {
            0..1
        }
        fn computes(&self) -> String {
            "ones".to_owned()
        }
        fn line(&self, _: usize) -> skulk::Result<Box<dyn FfnLine>> {
            Ok(Box::new(self.clone()))
        }
    }
    impl FfnLine for Owner {
        fn begin(&mut self, _: &FfnJob<'_>, _: &StepCx<'_>) -> skulk::Result<()> {
            self.begun.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn ready(&mut self, until: Instant, _: &StepCx<'_>) -> skulk::Result<bool> {
            if !self.answers {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            Ok(self.answers)
        }
        fn wait(&mut self, out: &mut [f32], _: &StepCx<'_>) -> skulk::Result<()> {
            out.fill(1.0);
            Ok(())
        }
    }
    let owner = |answers| Owner { begun: Arc::default(), answers };
    let (slow, quick) = (owner(false), owner(true));
    let both = Replicas::new([&slow, &quick].map(|owner| Arc::new(owner.clone()) as _)).unwrap();
    let both = both.hedge_after(Some(Duration::from_millis(5)));
    let (mut line, never) = (both.line(1).unwrap(), skulk::CancelToken::new());
    let (row, pairs) = ([0.5], [FfnPair::new(0, 0, 1.0)]);
    for _ in 0..5 {
        let mut out = [0.0];
        let job = FfnJob::new(skulk::LayerIdx(0), 1, &row, &pairs);
        line.begin(&job, &StepCx::new(&never)).unwrap();
        line.wait(&mut out, &StepCx::new(&never)).unwrap();
        assert_eq!(out, [1.0]);
    }
    let [slow, quick] = [slow, quick].map(|owner| owner.begun.load(Ordering::Relaxed));
    assert!(slow < 5 && quick == 5, "{slow} {quick}");
}

#[test]
fn replicas_compute_alike() {
    let name = "mixtral";
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let fast = serving(name, ServeOptions::default());
    let exact = computing().precision(Precision::Exact);
    let exact = serve(&*checkpoint, &ServeOptions::default().engine_options(exact)).unwrap();
    let service = |server: &Server| {
        let there = RemoteFfn::connect(server.address(), &*checkpoint, &ConnectOptions::default());
        Arc::new(there.unwrap()) as Arc<dyn FfnService>
    };
    let error = Replicas::new([service(&fast), service(&exact)]).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    // Other weights, too, though the client has none that it could hold them against.
    struct Says(Arc<dyn FfnService>, &'static str);
    impl FfnService for Says {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn serves(&self, layer: skulk::LayerIdx) -> std::ops::Range<usize> {
            self.0.serves(layer)
        }
        fn computes(&self) -> String {
            self.0.computes()
        }
        fn weights(&self) -> Vec<(skulk::LayerIdx, String)> {
            vec![(skulk::LayerIdx(1), self.1.to_owned())]
        }
        fn line(&self, max_rows: usize) -> skulk::Result<Box<dyn skulk::engine::FfnLine>> {
            self.0.line(max_rows)
        }
    }
    assert!(service(&fast).weights().len() > 1);
    let says = |hash| Arc::new(Says(service(&fast), hash)) as Arc<dyn FfnService>;
    assert!(Replicas::new([says("a"), says("a")]).is_ok());
    // Also behind others.
    let among = Arc::new(Replicas::new([says("a")]).unwrap()) as Arc<dyn FfnService>;
    assert!(Replicas::new([among, says("b")]).is_err());
    assert_eq!(
        Replicas::new([says("a"), says("b")]).map(drop).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(Replicas::new([]).map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Waiting for a server ends at once, wherever it is.
#[test]
fn cancelling_wakes_who_waits_for_a_server() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default());
    let proxy = Proxy::to(server.address());
    let model = open(name, &loading().ffn_at(proxy.address()));
    for requests in [0, 1, 4] {
        proxy.fault_after(requests, Fault::Silence);
        let mut generation = model.generate(OPENING, greedy(40)).unwrap();
        let cancel = std::thread::spawn({
            let wait = Duration::from_millis(200);
            let began = Instant::now();
            move || {
                std::thread::sleep(wait);
                began
            }
        });
        let began = cancel.join().unwrap();
        generation.cancel();
        let error = generation.find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        proxy.heal();
    }
}

/// The token of connecting ends loading, too.
#[test]
fn connecting_is_cancelled_by_either_token() {
    let server = serving("stories260K", ServeOptions::default());
    let cancelled = || {
        let token = CancelToken::new();
        token.cancel();
        token
    };
    let connect =
        loading().ffn_at(server.address().clone()).connect(ConnectOptions::default().cancel(cancelled()));
    let either = [connect, loading().ffn_at(server.address().clone()).cancel(cancelled())];
    for options in either {
        let error = Model::open(model_path("stories260K"), &options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
}

/// A host's own runtime may be at work on the thread that asks.
#[test]
fn servers_are_asked_from_within_a_runtime_too() {
    let name = "stories260K";
    let server = serving(name, ServeOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let model = open(name, &at(&server));
        assert_eq!(run(&model, 4).0.len(), 4);
        let checkpoint = open_checkpoint(model_path(name)).unwrap();
        drop(RemoteFfn::connect(server.address(), &*checkpoint, &ConnectOptions::default()).unwrap());
    });
}

/// Faults of any kind at any time: whatever they cut off goes on, and all is the text of a model alone.
#[test]
fn whatever_fails_the_text_is_the_same_in_the_end() {
    let name = "glm4_moe";
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let servers = [0..3, 3..8].map(|experts| serving(name, ServeOptions::default().experts(experts)));
    let proxies = [0, 1].map(|at| Proxy::to(servers[at].address()));
    let connect = ConnectOptions::default().timeout(Duration::from_millis(300));
    let options = proxies.iter().fold(loading(), |options, proxy| options.ffn_at(proxy.address()));
    let model = open(name, &options.connect(connect));
    let whole = open(name, &loading());
    let sampling = skulk::Sampling::default().temperature(1.2).seed(seed % 1000);
    let asked = greedy(24).sampling(sampling);
    let expected = whole.generate(OPENING, asked.clone()).unwrap().output().unwrap();
    for _ in 0..6 {
        let session = model.session().unwrap();
        let (mut ids, mut text, mut cut) = (Vec::new(), String::new(), 0);
        let fault = |random: &mut ChaCha8Rng| match random.next_u32() % 5 {
            0 => Fault::Refuse,
            1 => Fault::Silence,
            2 => Fault::CutAfter((random.next_u32() % 900) as usize),
            3 => Fault::Garbage,
            _ => Fault::Slow(Duration::from_millis(u64::from(random.next_u32() % 600))),
        };
        let mut generation = session.generate(OPENING, asked.clone()).unwrap();
        let mut over = false;
        while !over {
            // The first of this try, and fewer and fewer of those after it.
            if cut < 4 {
                let proxy = &proxies[random.next_u32() as usize % 2];
                proxy.fault_after((random.next_u32() % 60) as usize, fault(&mut random));
            }
            let mut failed = false;
            for event in generation.by_ref() {
                match event {
                    Ok(event) => {
                        ids.extend(event.token.map(|token| token.id));
                        text += &event.text;
                        over = event.finish.is_some();
                    }
                    Err(error) => {
                        assert_eq!(error.retry(), Retry::AfterReplan, "seed {seed}: {error}");
                        failed = true;
                    }
                }
            }
            proxies.iter().for_each(Proxy::heal);
            if failed {
                cut += 1;
                generation = session.resume().unwrap();
            }
        }
        assert_eq!((ids, text), (expected.ids.clone(), expected.text.clone()), "seed {seed}");
    }
}

#[test]
fn servers_are_asked_for_more_than_blocks() {
    let name = "stories260K";
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let server = serving(name, ServeOptions::default());
    let there = RemoteFfn::connect(server.address(), &*checkpoint, &ConnectOptions::default()).unwrap();
    let never = skulk::CancelToken::new();
    assert!(there.health(&never).unwrap().requests > 0);
    let table = checkpoint.region("model.embed_tokens.weight").unwrap();
    let width = table.shape()[1];
    let row = |id: usize| {
        let bytes = &table.bytes()[id * width * 4..][..width * 4];
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect::<Vec<_>>()
    };
    let tokens = [3, 500, 3].map(skulk::TokenId);
    assert_eq!(there.embed(&tokens, &never).unwrap(), [row(3), row(500), row(3)].concat());
    let likely = there.likely(&row(40), 5, 0.8, &never).unwrap();
    assert_eq!(likely.len(), 5);
    assert!(likely.windows(2).all(|pair| pair[0].probability >= pair[1].probability));
    assert!(likely.iter().all(|it| it.probability > 0.0 && it.probability < 1.0));
    // What the server or the model refuses.
    let error = there.embed(&[skulk::TokenId(512)], &never).unwrap_err();
    assert!(error.kind() == ErrorKind::PeerFailed && error.message().contains("out of range"), "{error}");
    assert_eq!(there.embed(&[], &never).unwrap_err().kind(), ErrorKind::PeerFailed);
    assert_eq!(there.likely(&[1.0], 5, 1.0, &never).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(there.likely(&row(40), 0, 1.0, &never).unwrap_err().kind(), ErrorKind::PeerFailed);
    let gone = skulk::CancelToken::new();
    gone.cancel();
    assert_eq!(there.health(&gone).unwrap_err().kind(), ErrorKind::Cancelled);
    drop(server);
    assert_eq!(there.health(&never).unwrap_err().kind(), ErrorKind::PeerLost);
}

/// Rows that go as integers of 8 bits change a little, and widths without whole blocks are refused.
#[test]
fn rows_can_go_as_integers() {
    let connect = || ConnectOptions::default().rows_q8k(true);
    let narrow = serving("stories260K", ServeOptions::default());
    let error = Model::open(model_path("stories260K"), &at(&narrow).connect(connect())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for name in ["llama", "gemma3"] {
        let server = serving(name, ServeOptions::default());
        let alone = said(&open(name, &loading())).0;
        let rounded = said(&open(name, &at(&server).connect(connect()))).0;
        let most = alone.iter().fold(0f32, |most, logit| most.max(logit.abs()));
        let off = rounded.iter().zip(&alone).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{name}: {} of the largest logit", off / most);
        // Integers of 8 bits lose 1/254 of a block's largest number.
        assert!(off > 0.0 && off < 0.05 * most, "{name}: {off} of {most}");
    }
}

pub(super) fn tls(name: &str) -> Vec<u8> {
    std::fs::read(super::root().join("tests/fixtures/tls").join(name)).unwrap()
}

pub(super) fn proof(name: &str) -> Identity {
    Identity::from_pem(tls(&format!("{name}.pem")), tls(&format!("{name}.key"))).unwrap()
}

/// Certificates must lead to whom the other side trusts, in both directions.
#[test]
fn servers_and_clients_prove_who_they_are() {
    let name = "stories260K";
    let roots = |name: &str| Roots::from_pem(tls(name)).unwrap();
    let listen =
        || ServeOptions::default().listen("https://127.0.0.1:0".parse().unwrap()).identity(proof("server"));
    let alone = said(&open(name, &loading()));
    let server = serving(name, listen());
    let model = open(name, &at(&server).connect(ConnectOptions::default().roots(roots("authority.pem"))));
    assert_eq!(said(&model), alone);
    let refused = |server: &Server, options: ConnectOptions| {
        RemoteFfn::connect(server.address(), &*open_checkpoint(model_path(name)).unwrap(), &options)
            .map(drop)
            .unwrap_err()
    };
    // Another authority's, none that is public, and plain words for encrypted ones.
    for options in [ConnectOptions::default().roots(roots("stranger.pem")), ConnectOptions::default()] {
        let error = refused(&server, options);
        assert!(error.kind() == ErrorKind::PeerFailed && error.hint().unwrap().contains("roots"), "{error}");
    }
    let plain = server.address().to_string().replace("https", "http").parse().unwrap();
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let error = RemoteFfn::connect(&plain, &*checkpoint, &ConnectOptions::default()).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::PeerLost && error.hint().unwrap().contains("https://"), "{error}");
    let open_to_all = serving(name, ServeOptions::default());
    let encrypted = open_to_all.address().to_string().replace("http", "https").parse().unwrap();
    let error =
        RemoteFfn::connect(&encrypted, &*checkpoint, &ConnectOptions::default()).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::PeerFailed && error.hint().unwrap().contains("http://"), "{error}");
    let mutual = serving(name, listen().clients(roots("authority.pem")));
    let trusting = || ConnectOptions::default().roots(roots("authority.pem"));
    let model = open(name, &at(&mutual).connect(trusting().identity(proof("client"))));
    assert_eq!(said(&model), alone);
    for options in [trusting(), trusting().identity(proof("strange-client"))] {
        let error = refused(&mutual, options);
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        assert!(error.hint().unwrap().contains("option identity"), "{error}");
    }
}

/// Times that no clock has are no times, and nothing that panics.
#[test]
fn waiting_without_end_is_waiting() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default());
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let forever = ConnectOptions::default().timeout(Duration::MAX).connect_timeout(Duration::MAX);
    let service = || Arc::new(RemoteFfn::connect(server.address(), &*checkpoint, &forever).unwrap()) as _;
    let model = open(name, &at(&server).connect(forever.clone()));
    let (alone, _) = run(&open(name, &loading()), 4);
    assert_eq!(run(&model, 4).0, alone);
    let both = Replicas::new([service(), service()]).unwrap().hedge_after(Some(Duration::MAX));
    let row = vec![0.5; model.arch().hidden_size];
    let pairs = [FfnPair::new(0, 1, 1.0)];
    let job = FfnJob::new(skulk::LayerIdx(0), row.len(), &row, &pairs).residual(&row);
    let never = skulk::CancelToken::new();
    let mut line = both.line(1).unwrap();
    line.begin(&job, &StepCx::new(&never)).unwrap();
    line.wait(&mut vec![0.0; row.len()], &StepCx::new(&never)).unwrap();
}

/// How long beyond its deadline an owner that says nothing keeps a job; shown, as clocks of machines under load differ.
#[test]
fn a_silent_owner_is_left_at_its_deadline() {
    let name = "mixtral";
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let (first, second) = (serving(name, ServeOptions::default()), serving(name, ServeOptions::default()));
    let proxy = Proxy::to(first.address());
    let deadline = Duration::from_millis(300);
    let options = ConnectOptions::default().timeout(deadline);
    let service =
        |address: &Address| Arc::new(RemoteFfn::connect(address, &*checkpoint, &options).unwrap()) as _;
    let both = Replicas::new([service(&proxy.address()), service(second.address())]).unwrap();
    let both = both.hedge_after(None);
    let width = skulk::arch::ArchSpec::from_checkpoint(&*checkpoint).unwrap().hidden_size;
    let (row, pairs, never) = (vec![0.5; width], [FfnPair::new(0, 1, 1.0)], skulk::CancelToken::new());
    let job = FfnJob::new(skulk::LayerIdx(0), width, &row, &pairs).residual(&row);
    let mut line = both.line(1).unwrap();
    let mut computed = |out: &mut Vec<f32>| {
        let began = Instant::now();
        line.begin(&job, &StepCx::new(&never)).unwrap();
        line.wait(out, &StepCx::new(&never)).unwrap();
        began.elapsed()
    };
    let (mut before, mut after) = (vec![0.0; width], vec![0.0; width]);
    computed(&mut before);
    proxy.fault_after(0, Fault::Silence);
    let time = computed(&mut after);
    println!("{:?} beyond the deadline", time.saturating_sub(deadline));
    assert!(time >= deadline && before == after, "{time:?}");
    proxy.heal();
}

/// What servers lack is computed where the options say.
#[cfg(feature = "candle")]
#[test]
fn what_servers_lack_is_left_to_the_cpu_where_that_is_asked() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default().experts(0..7));
    let options = || at(&server).engine_name("candle-cpu");
    let device = |options: &LoadOptions| open(name, options).stages()[0].device.clone();
    let beside = device(&options().ffn_on_cpu(true));
    assert!(beside.contains("skulk at") && beside.matches("CPU").count() > 1, "{beside}");
    let own = device(&options());
    assert!(own.contains("skulk at") && own.matches("CPU").count() < beside.matches("CPU").count(), "{own}");
}

/// Links to servers are measured, also where these take few bytes at once; who sends nothing back is told apart.
#[test]
fn links_are_measured() {
    let server = serving("stories260K", ServeOptions::default().key("k").max_body(ByteSize(300 << 10)));
    let options = ConnectOptions::default().key("k");
    let speed = measure_link(server.address(), &options).unwrap();
    assert!((1e-7..1.0).contains(&speed.round_trip_seconds), "{speed:?}");
    assert!((1e6..1e13).contains(&speed.bytes_per_second), "{speed:?}");

    let refused = |address: &Address, options: &ConnectOptions, kind: ErrorKind, hint: &str| {
        let error = measure_link(address, options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.hint().is_some_and(|it| it.contains(hint)), "{error}");
    };
    refused(server.address(), &ConnectOptions::default(), ErrorKind::PeerFailed, "key");
    let grpc = server.address().to_string().replace("http", "grpc").parse().unwrap();
    refused(&grpc, &options, ErrorKind::InvalidArgument, "http");
    let cancelled = skulk::CancelToken::new();
    cancelled.cancel();
    let error = measure_link(server.address(), &options.clone().cancel(cancelled)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let gone = server.address().clone();
    server.stop(Duration::from_secs(1));
    refused(&gone, &options, ErrorKind::PeerLost, "runs");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    refused(&other, &options, ErrorKind::PeerFailed, "by hand");
    answering.join().unwrap();
}

/// Reads a message of HTTP/1.1 that says how long it is.
fn message(stream: &mut impl std::io::Read) -> Option<(String, Vec<u8>)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// A relay that ends every connection behind its first answer, so much later; whether answers say so.
fn one_by_one(to: &Address, later: Duration, says: bool) -> Address {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let to = to.to_string().replace("http://", "");
    std::thread::spawn(move || {
        for near in listener.incoming().take(2000) {
            let (mut near, to) = (near.unwrap(), to.clone());
            std::thread::spawn(move || {
                let (head, body) = message(&mut near)?;
                let mut far = TcpStream::connect(to).ok()?;
                far.write_all(&[head.as_bytes(), &body].concat()).ok()?;
                let (head, body) = message(&mut far)?;
                let end = if says { "connection: close\r\n\r\n" } else { "\r\n" };
                near.write_all(
                    &[head.trim_end_matches("\r\n").as_bytes(), b"\r\n", end.as_bytes(), &body].concat(),
                )
                .ok()?;
                std::thread::sleep(later);
                Some(())
            });
        }
    });
    address
}

/// Others compute with all features.
#[test]
fn features_that_others_would_not_heed_are_refused() {
    let server = serving("stories260K", ServeOptions::default());
    let few = computing().ffn_top_features(5);
    let options = loading().engine_options(few).ffn_at(server.address().clone());
    let error = Model::open(model_path("stories260K"), &options).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.context().contains(&("field", "ffn_top_features".to_owned())), "{error}");
}

/// As LARQL's recorded servers answer, and many a proxy.
#[test]
fn a_server_may_end_each_connection_behind_its_answer() {
    let alone = said(&open("stories260K", &loading()));
    let server = serving("stories260K", ServeOptions::default());
    for (later, says) in [(Duration::ZERO, true), (Duration::ZERO, false), (Duration::from_millis(15), false)]
    {
        let address = one_by_one(server.address(), later, says);
        assert_eq!(said(&open("stories260K", &loading().ffn_at(address))), alone, "{later:?} {says}");
    }
}

/// What a server says reaches errors as one line of letters, and not all of it.
#[test]
fn what_servers_say_is_told_in_one_line() {
    use std::io::{Read, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let said = format!("{{\"error\":\"no\\u001b[2J\\nplease{}\"}}", "!".repeat(5000));
    let stats = r#"{"hidden_size":63,"model":"a\nb"}"#;
    let answers = [
        ("400 Bad Request", said),
        ("500 Internal Server Error", "\u{1b}]0;x".into()),
        ("200 OK", stats.into()),
    ];
    let answering = std::thread::spawn(move || {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let head =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    let checkpoint = open_checkpoint(model_path("mixtral")).unwrap();
    for words in ["no\\u{1b}[2J\\nplease!!!", "\\u{1b}]0;x", "found rows of 63 (`a\\nb`)"] {
        let error =
            RemoteFfn::connect(&address, &*checkpoint, &ConnectOptions::default()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerFailed, "{error}");
        assert!(error.message().contains(words), "{error}");
        assert!(error.message().len() < 600 && !error.message().contains(char::is_control), "{error}");
    }
    answering.join().unwrap();
}

/// A relay that holds up what passes: 16 KiB at a time, each for 5 ms. It ends with the connection.
fn slow_link(to: &Address) -> (Address, std::thread::JoinHandle<()>) {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let to = to.to_string().replace("http://", "");
    let relay = |mut from: TcpStream, mut to: TcpStream| {
        let mut piece = [0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            std::thread::sleep(Duration::from_millis(5));
            if to.write_all(&piece[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    let ended = std::thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(to).unwrap();
        let (back, there) = ((far.try_clone().unwrap(), near.try_clone().unwrap()), (near, far));
        let back = std::thread::spawn(move || relay(back.0, back.1));
        relay(there.0, there.1);
        back.join().unwrap();
    });
    (address, ended)
}

/// A slow link is found to be no faster than it is, by its trips and by its bytes.
#[test]
fn a_slow_link_is_measured_as_slow() {
    let server = serving("stories260K", ServeOptions::default());
    let (address, ended) = slow_link(server.address());
    let speed = measure_link(&address, &ConnectOptions::default()).unwrap();
    ended.join().unwrap();
    assert!(speed.round_trip_seconds >= 0.010, "{speed:?}");
    let most = f64::from(16 << 10) / 0.005;
    assert!((most / 100.0..most * 1.5).contains(&speed.bytes_per_second), "{speed:?} of {most}");
}
