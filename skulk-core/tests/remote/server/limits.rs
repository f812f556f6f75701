//! Does a server stay there for others, whatever some do?

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{LOST, Server, connect, frame, get, llama, options, post, reply, request, rows, served, vindex};

const SHORT: Duration = Duration::from_secs(1);

/// The server closes without another word.
fn closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest.is_empty(),
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Waits for what comes in time.
fn until(has_come: impl Fn() -> bool) {
    let started = Instant::now();
    while !has_come() {
        assert!(started.elapsed() < LOST);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn walk(n: usize) -> Vec<u8> {
    frame(&[0, n as u32, 1, 8], &rows(n as u32, n * 256))
}

#[test]
fn who_says_nothing_or_too_slowly_is_left() {
    let options = options().header_timeout(SHORT).body_timeout(SHORT).idle_timeout(SHORT);
    let server = served(vindex("tiny-llama512.q4kd"), &options);
    let started = Instant::now();
    let mut silent = connect(&server);
    let mut slow = connect(&server);
    slow.write_all(b"GET /v1/health HTTP/1.1\r\nhost").unwrap();
    let mut idle = connect(&server);
    idle.write_all(&request("GET", "/v1/health", &[], &[])).unwrap();
    assert_eq!(reply(&mut idle).status, 200);
    let mut half = connect(&server);
    let whole = request("POST", "/v1/walk-ffn", &[("content-type", "application/x-larql-ffn")], &walk(1));
    half.write_all(&whole[..whole.len() - 1]).unwrap();
    assert_eq!(reply(&mut half).status, 408);
    for stream in [&mut silent, &mut slow, &mut idle, &mut half] {
        assert!(closed(stream));
    }
    assert!(started.elapsed() < LOST);
    // Who goes on is not left: each request is timed by itself.
    let mut lively = connect(&server);
    for _ in 0..12 {
        lively.write_all(&request("GET", "/v1/health", &[], &[])).unwrap();
        assert_eq!(reply(&mut lively).status, 200);
        std::thread::sleep(SHORT / 8);
    }
}

#[test]
fn a_thousand_idle_connections_keep_nobody_out() {
    let server = served(vindex("tiny-llama512.q4kd"), &options().max_connections(8));
    let idle: Vec<_> = (0..1000).map(|_| connect(&server)).collect();
    for _ in 0..20 {
        assert_eq!(get(&server, "/v1/health").status, 200);
    }
    drop(idle);
}

#[test]
fn beyond_connections_that_are_busy_others_are_refused() {
    let server = served(vindex("tiny-llama512.q4kd"), &options().max_connections(2));
    // Their bodies are waited for.
    let head = request("POST", "/v1/walk-ffn", &[("content-type", "application/x-larql-ffn")], &walk(1));
    let mut busy: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(&head[..head.len() - 1]).unwrap();
            stream
        })
        .collect();
    // Until both have been read so far.
    until(|| {
        let text = server.metrics();
        let received = text.lines().find_map(|line| line.strip_prefix("skulk_ffn_received_bytes_total "));
        received.unwrap().parse::<usize>().unwrap() >= 2 * (head.len() - 1)
    });
    let other = get(&server, "/v1/health");
    assert_eq!((other.status, other.header("retry-after")), (503, Some("1")));
    assert!(other.error().contains("too many connections"));
    for stream in &mut busy {
        stream.write_all(&head[head.len() - 1..]).unwrap();
        assert_eq!(reply(stream).status, 200);
    }
}

#[test]
fn who_would_wait_behind_too_many_is_told_to_come_again() {
    let server = served(vindex("tiny-llama512.q4kd"), &options().queue(1).max_rows(4096));
    let body = walk(2000);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || {
            let replied = post(&server, "/v1/walk-ffn", "application/x-larql-ffn", &body);
            if replied.status == 429 {
                assert_eq!(replied.header("retry-after"), Some("1"));
                assert!(replied.error().contains("wait"));
            }
            replied.status
        };
        let asking: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert_eq!(post(&server, "/v1/walk-ffn", "application/x-larql-ffn", &walk(1)).status, 200);
}

/// Sends a request that takes a while, and waits until it is being computed.
fn begun(server: &Server, n: usize) -> TcpStream {
    let bytes = request("POST", "/v1/walk-ffn", &[("content-type", "application/x-larql-ffn")], &walk(n));
    let mut stream = connect(server);
    stream.write_all(&bytes).unwrap();
    until(|| !server.metrics().contains("skulk_ffn_waiting_seconds_count 0"));
    stream
}

#[test]
fn what_was_begun_is_finished_before_the_server_ends() {
    let server = llama();
    let mut idle = connect(&server);
    let mut kept = connect(&server);
    kept.write_all(&request("GET", "/v1/health", &[], &[])).unwrap();
    assert_eq!(reply(&mut kept).status, 200);
    let mut asked = begun(&server, 4000);
    let replied = std::thread::scope(|scope| {
        let waits = scope.spawn(|| server.wait());
        let replied = scope.spawn(|| reply(&mut asked));
        server.stop(LOST);
        waits.join().unwrap();
        replied.join().unwrap()
    });
    assert_eq!((replied.status, replied.body.len()), (200, 12 + 4000 * 1024));
    assert!(closed(&mut asked) && closed(&mut idle) && closed(&mut kept));
    let address = server.address().to_string();
    assert!(TcpStream::connect(address.split("//").nth(1).unwrap()).is_err());
    // It has ended, and does so again.
    server.stop(Duration::ZERO);
}

#[test]
fn without_grace_the_server_ends_at_once() {
    let server = served(vindex("tiny-llama512.q4kd"), &options().max_rows(1));
    let mut asked = begun(&server, 20_000);
    let started = Instant::now();
    drop(server);
    assert!(started.elapsed() < LOST);
    assert!(closed(&mut asked));
}
