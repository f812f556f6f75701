//! What can happen between a client and a server? A proxy that forwards, and fails as it is told.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use skulk::remote::Address;

/// What happens to requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// Connections are closed, and new ones, too.
    Refuse,
    /// Nothing comes back.
    Silence,
    /// Of each answer only so many bytes come back.
    CutAfter(usize),
    /// Something else comes back.
    Garbage,
    /// Answers come so much later.
    Slow(Duration),
}

struct Shared {
    to: Mutex<SocketAddr>,
    fault: Mutex<Option<Fault>>,
    /// Requests that still go through.
    left: AtomicUsize,
    over: AtomicBool,
}

impl Shared {
    fn fault(&self) -> Option<Fault> {
        if self.left.load(Ordering::SeqCst) > 0 { None } else { *self.fault.lock().unwrap() }
    }
}

/// A proxy on a port of its own.
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

fn socket(address: &Address) -> SocketAddr {
    address.to_string().strip_prefix("http://").unwrap().parse().unwrap()
}

impl Proxy {
    pub(super) fn to(server: &Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (fault, left) = (Mutex::new(None), AtomicUsize::new(usize::MAX));
        let over = AtomicBool::new(false);
        let shared = Arc::new(Shared { to: Mutex::new(socket(server)), fault, left, over });
        let of_all = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_all.over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_all);
                thread::spawn(move || {
                    // Whatever ends it, the client sees.
                    let _ = forward(stream?, &shared);
                    std::io::Result::Ok(())
                });
            }
        });
        Self { address, shared }
    }

    pub(super) fn address(&self) -> Address {
        format!("http://{}", self.address).parse().unwrap()
    }

    /// Lets so many requests through, and then does this to all others.
    pub(super) fn fault_after(&self, requests: usize, fault: Fault) {
        *self.shared.fault.lock().unwrap() = Some(fault);
        self.shared.left.store(requests, Ordering::SeqCst);
    }

    pub(super) fn heal(&self) {
        *self.shared.fault.lock().unwrap() = None;
        self.shared.left.store(usize::MAX, Ordering::SeqCst);
    }

    /// Forwards to another server, from the next connection on; those that there are end.
    pub(super) fn move_to(&self, server: &Address) {
        *self.shared.to.lock().unwrap() = socket(server);
        self.fault_after(0, Fault::Refuse);
        thread::sleep(Duration::from_millis(60));
        self.heal();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

/// Forwards in both directions. A request is what the client writes while no answer is under way.
fn forward(mut client: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    if shared.fault() == Some(Fault::Refuse) {
        return Ok(());
    }
    let mut server = TcpStream::connect(*shared.to.lock().unwrap())?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
    }
    let mut buffer = vec![0; 1 << 16];
    let (mut asking, mut answered) = (false, 0);
    loop {
        if shared.over.load(Ordering::SeqCst) || shared.fault() == Some(Fault::Refuse) {
            client.shutdown(Shutdown::Both).ok();
            return Ok(());
        }
        match read(&mut client, &mut buffer)? {
            Some(0) => return Ok(()),
            Some(n) => {
                if !asking {
                    (asking, answered) = (true, 0);
                    let one_less = |left: usize| (left < usize::MAX).then(|| left.saturating_sub(1));
                    // The request counts before its fault is looked at: with none left it is the first that fails.
                    let failing = shared.fault().is_some();
                    if !failing {
                        shared.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).ok();
                    }
                    if failing && shared.fault() == Some(Fault::Silence) {
                        silence(shared);
                        return Ok(());
                    }
                }
                server.write_all(&buffer[..n])?;
                continue;
            }
            None => {}
        }
        match read(&mut server, &mut buffer)? {
            Some(0) => return Ok(()),
            Some(n) => {
                asking = false;
                match shared.fault() {
                    Some(Fault::CutAfter(most)) if answered + n > most => {
                        client.write_all(&buffer[..most.saturating_sub(answered)])?;
                        return Ok(());
                    }
                    Some(Fault::Garbage) => return client.write_all(&[0x5a; 400]),
                    Some(Fault::Silence) => {
                        silence(shared);
                        return Ok(());
                    }
                    Some(Fault::Slow(time)) => {
                        let steps = time.as_millis() / 10;
                        for _ in 0..steps {
                            if shared.over.load(Ordering::SeqCst) || shared.fault().is_none() {
                                break;
                            }
                            thread::sleep(Duration::from_millis(10));
                        }
                    }
                    _ => {}
                }
                answered += n;
                client.write_all(&buffer[..n])?;
            }
            None => {}
        }
    }
}

fn silence(shared: &Shared) {
    for _ in 0..6000 {
        if shared.over.load(Ordering::SeqCst) || shared.fault() != Some(Fault::Silence) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> std::io::Result<Option<usize>> {
    match stream.read(buffer) {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}
