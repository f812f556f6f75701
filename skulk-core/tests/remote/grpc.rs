//! Are experts asked and served over gRPC as over HTTP, in LARQL's messages?

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use skulk::remote::wire::WireType;
use skulk::remote::wire::grpc::{BatchReply, BatchRequest, LayerInput, LayerOutput, split};
use skulk::remote::{Address, ConnectOptions, RemoteFfn, Roots, ServeOptions, Server};
use skulk::{CancelToken, ErrorKind, Retry, open_checkpoint};

use super::client::{OPENING, loading, open, proof, run, said, serving, tls};
use super::fault::{Fault, Proxy};
use super::frames::{self, refused};
use super::{model_path, root};

/// Elements of a row of the recorded messages.
const HIDDEN: usize = 4;

/// Which message each recorded one is.
const RECORDED: &[(&str, &str)] = &[
    ("batch-request", "batch-request.bin"),
    ("batch-reply", "batch-reply.bin"),
    ("layer-input", "layer-input.bin"),
    ("layer-input", "layer-input-normed.bin"),
    ("layer-output", "layer-output.bin"),
];

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(root().join("tests/fixtures/grpc").join(name)).unwrap()
}

fn row(k: usize) -> Vec<f32> {
    (0..HIDDEN).map(|at| (k + at) as f32 / 8.0 - 1.0).collect()
}

fn numbers(rows: skulk::remote::wire::Rows<'_>) -> Vec<f32> {
    let mut out = Vec::new();
    rows.append_to(&mut out).unwrap();
    out
}

#[test]
fn recorded_messages_say_what_was_written() {
    let places = [(0, 0), (3, 200), (300, 7)];
    let bytes = recorded("batch-request.bin");
    let request = BatchRequest::decode(&bytes, HIDDEN).unwrap();
    for ((at, row_of), place) in request.rows().enumerate().zip(places) {
        assert_eq!((row_of.layer, row_of.expert), place);
        assert_eq!(numbers(row_of.values), row(at));
    }
    let bytes = recorded("batch-reply.bin");
    let reply = BatchReply::decode(&bytes, HIDDEN).unwrap();
    assert_eq!((reply.len(), reply.latency_ms()), (3, 1.5));
    for (name, normed) in [("layer-input.bin", false), ("layer-input-normed.bin", true)] {
        let bytes = recorded(name);
        let input = LayerInput::decode(&bytes, HIDDEN).unwrap();
        assert_eq!((input.layer(), numbers(input.row())), (5, row(3)));
        let experts: Vec<_> = input.experts().map(|taken| (taken.expert, taken.weight)).collect();
        assert_eq!(experts, [(1, 0.5), (0, 0.25), (300, -2.0)]);
        let norm = input.norm().map(|norm| (numbers(norm.weight), norm.offset, norm.eps));
        assert_eq!(norm, normed.then(|| (row(4), 1.0, 1e-6)));
    }
    let bytes = recorded("layer-output.bin");
    let output = LayerOutput::decode(&bytes, HIDDEN).unwrap();
    assert_eq!((output.layer, numbers(output.row), output.compute_ms), (5, row(5), 0.25));
}

#[test]
fn recorded_messages_are_written_again_byte_for_byte() {
    for (name, path) in RECORDED {
        let bytes = recorded(path);
        let read = frames::MESSAGES.iter().find(|(found, _)| found == name).unwrap().1;
        let again = read(&bytes, HIDDEN).unwrap().unwrap();
        match path.contains("normed") {
            // No client of this library asks for it.
            true => assert_eq!(again, recorded("layer-input.bin")),
            false => assert_eq!(again, bytes, "{path}"),
        }
    }
}

#[test]
fn damaged_messages_are_refused() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for (name, path) in RECORDED {
        let bytes = recorded(path);
        let read = frames::MESSAGES.iter().find(|(found, _)| found == name).unwrap().1;
        for end in 0..bytes.len() {
            // Between two fields a message may end, and still be one.
            if let Err(error) = read(&bytes[..end], HIDDEN) {
                refused(&error);
            }
        }
        refused(&read(&[&bytes[..], &[0]].concat(), HIDDEN).expect_err(name));
        for hidden in [0, HIDDEN - 1, HIDDEN + 1, usize::MAX / 2, usize::MAX] {
            refused(&read(&bytes, hidden).expect_err(name));
        }
        for _ in 0..3000 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random.next_u32() % 4 {
                let at = random.next_u32() as usize % bytes.len();
                bytes[at] = random.next_u32() as u8;
            }
            frames::exercise_messages(&bytes, HIDDEN);
        }
    }
}

/// Lengths, counts and types that no message has; what is unknown is passed over.
#[test]
fn messages_that_lie_are_refused() {
    let layer_input = |bytes: &[u8]| LayerInput::decode(bytes, HIDDEN).map(drop);
    let good = recorded("layer-input.bin");
    let with = |more: &[u8]| [&good[..], more].concat();
    // Unknown: a number, eight bytes, text, and a group.
    for unknown in [&[0x78, 5][..], &[0x79, 1, 2, 3, 4, 5, 6, 7, 8], &[0x7a, 2, 1, 2], &[0x7b, 0x78, 1, 0x7c]]
    {
        layer_input(&with(unknown)).unwrap();
    }
    // Numbers that come one by one belong to those that came together.
    layer_input(&with(&[0x10, 9, 0x1d, 0, 0, 0, 0x3f])).unwrap();
    for wrong in [
        // One weight or one expert more.
        &[0x10, 9][..],
        &[0x1d, 0, 0, 0, 0x3f],
        // A weight that is no number, a layer of 33 bits, a row as a number, a group without an end.
        &[0x10, 9, 0x1d, 0, 0, 0xc0, 0x7f],
        &[0x08, 0xff, 0xff, 0xff, 0xff, 0x1f],
        &[0x20, 1],
        &[0x7b, 0x78, 1],
        // Lengths beyond the message, and beyond all numbers.
        &[0x22, 17, 1],
        &[0x22, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
    ] {
        refused(&layer_input(&with(wrong)).expect_err("it lies"));
    }
    // No experts, no rows.
    refused(&layer_input(&[]).unwrap_err());
    refused(&BatchRequest::decode(&[], HIDDEN).map(drop).unwrap_err());
    assert_eq!(BatchReply::decode(&[], HIDDEN).unwrap().len(), 0);
    // Prefixes: compressed, too long, not whole.
    refused(&split(&[1, 0, 0, 0, 1, 7], 9).unwrap_err());
    refused(&split(&[0, 0, 0, 0, 10], 9).unwrap_err());
    assert!(split(&[0, 0, 0, 0, 2, 7], 9).unwrap().is_none() && split(&[0; 4], 9).unwrap().is_none());
    assert_eq!(split(&[0, 0, 0, 0, 1, 7, 8], 9).unwrap(), Some((&[7][..], &[8][..])));
}

/// Where a server speaks gRPC.
fn grpc(address: &Address) -> Address {
    address.to_string().replacen("http", "grpc", 1).parse().unwrap()
}

fn at(servers: &[&Server]) -> skulk::LoadOptions {
    servers.iter().fold(loading(), |options, server| options.ffn_at(grpc(server.address())))
}

/// Sums of one server; single experts of several; dense blocks are this process's.
#[test]
fn experts_over_grpc_change_no_bit() {
    for name in ["mixtral", "glm4_moe", "gemma4_moe", "gpt_oss", "llama4"] {
        let here = open(name, &loading());
        let alone = said(&here);
        let experts = here.arch().layers.iter().find_map(|layer| layer.ffn.experts).unwrap();
        let whole = serving(name, ServeOptions::default());
        assert_eq!(said(&open(name, &at(&[&whole]))), alone, "{name}");
        let part = |experts| serving(name, ServeOptions::default().experts(experts));
        let (one, other) = (part(0..1), part(1..experts.n_experts));
        let model = open(name, &at(&[&one, &other]));
        assert_eq!(said(&model), alone, "{name}, two servers");
        for output in model.generate_batch([OPENING; 5], &super::client::greedy(12)) {
            assert_eq!(output.unwrap().ids, alone.1, "{name}, several");
        }
        // There is one type of numbers.
        let halves = at(&[&whole]).connect(ConnectOptions::default().wire(WireType::F16));
        assert_eq!(said(&open(name, &halves)), alone, "{name}, with halves asked for");
    }
}

#[test]
fn grpc_is_encrypted_and_wants_keys_as_http() {
    let name = "mixtral";
    let alone = said(&open(name, &loading()));
    let roots = || Roots::from_pem(tls("authority.pem")).unwrap();
    let listen =
        ServeOptions::default().listen("https://127.0.0.1:0".parse().unwrap()).identity(proof("server"));
    let server = serving(name, listen.clients(roots()).key("right"));
    assert!(grpc(server.address()).to_string().starts_with("grpcs://"));
    let options = ConnectOptions::default().roots(roots()).identity(proof("client"));
    let model = open(name, &at(&[&server]).connect(options.clone().key("right")));
    assert_eq!(said(&model), alone);
    let checkpoint = open_checkpoint(model_path(name)).unwrap();
    let reach = |options: &ConnectOptions| {
        RemoteFfn::connect(&grpc(server.address()), &*checkpoint, options).map(drop)
    };
    let error = reach(&options.clone().key("wrong")).unwrap_err();
    assert!(error.kind() == ErrorKind::PeerFailed && error.message().contains("401"), "{error}");
    let error = reach(&ConnectOptions::default().key("right")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PeerLost | ErrorKind::PeerFailed), "{error}");
}

#[test]
fn faults_over_grpc_are_errors_and_nothing_else() {
    let name = "mixtral";
    let server = serving(name, ServeOptions::default());
    let proxy = Proxy::to(server.address());
    let connect = ConnectOptions::default().timeout(Duration::from_secs(2));
    let model = open(name, &loading().ffn_at(grpc(&proxy.address())).connect(connect));
    let (alone, _) = run(&open(name, &loading()), 12);
    assert_eq!(run(&model, 12).0, alone);
    for fault in [Fault::Refuse, Fault::Silence, Fault::CutAfter(40), Fault::CutAfter(500), Fault::Garbage] {
        for requests in [0, 3] {
            proxy.fault_after(requests, fault);
            let (ids, error) = run(&model, 12);
            let error = error.unwrap_or_else(|| panic!("{fault:?} was not noticed"));
            let said = (error.kind(), error.retry());
            assert_eq!(said, (ErrorKind::PeerLost, Retry::AfterReplan), "{fault:?} {error}");
            assert_eq!(ids, alone[..ids.len()]);
            proxy.heal();
            assert_eq!(run(&model, 12).0, alone, "{fault:?}");
        }
    }
}

#[test]
fn a_server_that_is_gone_is_replaced_over_grpc() {
    let name = "mixtral";
    let idle = ServeOptions::default().idle_timeout(Duration::from_millis(150));
    let (first, second) = (serving(name, idle), serving(name, ServeOptions::default()));
    let (alone, _) = run(&open(name, &loading()), 12);
    let model = open(name, &at(&[&first, &second]));
    for _ in 0..2 {
        assert_eq!(run(&model, 12).0, alone);
        std::thread::sleep(Duration::from_millis(300));
    }
    first.stop(Duration::from_secs(5));
    let (ids, error) = run(&model, 12);
    assert!(error.is_none(), "{}", error.unwrap());
    assert_eq!(ids, alone);
}

#[test]
fn what_grpc_has_no_words_for_is_refused() {
    let server = serving("mixtral", ServeOptions::default());
    let checkpoint = open_checkpoint(model_path("mixtral")).unwrap();
    let address = grpc(server.address());
    let there = RemoteFfn::connect(&address, &*checkpoint, &ConnectOptions::default()).unwrap();
    let error = there.health(&CancelToken::new()).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("grpc://"), "{error}");
    let integers = ConnectOptions::default().rows_q8k(true);
    let error = RemoteFfn::connect(&address, &*checkpoint, &integers).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    // A server listens for both, so that neither address is one to listen on.
    let listen = ServeOptions::default().listen("grpc://127.0.0.1:0".parse().unwrap());
    let error = skulk::remote::serve(&*checkpoint, &listen).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.hint().unwrap().contains("http"), "{error}");
    // Nobody has words for dense blocks.
    let dense = serving("stories260K", ServeOptions::default());
    let error = skulk::Model::open(model_path("stories260K"), &at(&[&dense])).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains("experts"), "{error}");
}
