//! Servers, and a small client of HTTP/1.1 that asks them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use skulk::remote::{ServeOptions, Server, serve};
use skulk::{EngineOptions, Precision, open_checkpoint};

use super::root;

mod limits;
mod refused;
mod replayed;
mod secure;
mod together;

/// Longer than any test takes; only who waits in vain waits for it.
const LOST: Duration = Duration::from_secs(60);

/// What a server replied.
#[derive(Debug)]
struct Replied {
    status: u16,
    /// In lower case.
    head: String,
    body: Vec<u8>,
}

impl Replied {
    /// A header's value.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The member `error`.
    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// Reads one reply.
fn reply(stream: &mut impl Read) -> Replied {
    let (mut bytes, mut buf) = (Vec::new(), [0; 4096]);
    let mut more = |bytes: &mut Vec<u8>| {
        let read = stream.read(&mut buf).unwrap();
        let begin = &bytes[..bytes.len().min(200)];
        assert!(read > 0, "the server closed behind {} bytes: {}", bytes.len(), begin.escape_ascii());
        bytes.extend_from_slice(&buf[..read]);
    };
    let end = loop {
        match bytes.windows(4).position(|at| at == b"\r\n\r\n") {
            Some(at) => break at + 4,
            None => more(&mut bytes),
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut replied = Replied { status, head, body: Vec::new() };
    let length: usize = replied.header("content-length").unwrap().parse().unwrap();
    while bytes.len() < end + length {
        more(&mut bytes);
    }
    assert_eq!(bytes.len(), end + length, "nothing follows");
    replied.body = bytes.split_off(end);
    replied
}

/// A request's bytes.
fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    let mut bytes = (bytes + "\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A connection of TCP.
fn connect(server: &Server) -> TcpStream {
    let address = server.address().to_string();
    let stream = TcpStream::connect(address.split("//").nth(1).unwrap()).unwrap();
    stream.set_read_timeout(Some(LOST)).unwrap();
    stream
}

/// One request on a connection of its own.
fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Replied {
    let mut stream = connect(server);
    stream.write_all(&request(method, path, headers, body)).unwrap();
    reply(&mut stream)
}

fn get(server: &Server, path: &str) -> Replied {
    ask(server, "GET", path, &[], &[])
}

fn post(server: &Server, path: &str, content_type: &str, body: &[u8]) -> Replied {
    ask(server, "POST", path, &[("content-type", content_type)], body)
}

/// A vindex folder of the fixtures.
fn vindex(name: &str) -> PathBuf {
    root().join("tests/fixtures/vindex").join(name)
}

fn model(name: &str) -> PathBuf {
    root().join("tests/fixtures/models").join(name)
}

/// Of two threads, on a port that is free.
fn options() -> ServeOptions {
    ServeOptions::default().engine_options(EngineOptions::default().threads(2).precision(Precision::Exact))
}

fn served(folder: PathBuf, options: &ServeOptions) -> Server {
    serve(&*open_checkpoint(folder).unwrap(), options).unwrap()
}

/// The dense llama whose replies were recorded.
fn llama() -> Server {
    served(vindex("tiny-llama512.q4kd"), &options())
}

/// The mixture whose replies were recorded.
fn gemma() -> Server {
    served(vindex("tiny-gemma4moe.q4k"), &options())
}

/// A frame of zeros but for these words.
fn frame(words: &[u32], values: &[f32]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(values.iter().flat_map(|value| value.to_le_bytes())).collect()
}

/// Rows that look random.
fn rows(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}
