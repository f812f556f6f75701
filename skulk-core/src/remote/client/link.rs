//! How fast is the link to a server? Small questions there and back, then bytes that come back as they went.

use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::{Method, StatusCode};

use super::connection::{Answer, Ask, Connection};
use super::known::failed;
use super::waiting::{Ended, Runtime, Until, after};
use super::{ConnectOptions, WORDS, target};
use crate::error::Result;
use crate::plan::LinkSpeed;
use crate::remote::Address;

/// Questions whose time is taken.
const TRIPS: usize = 15;
/// Bytes that are sent at first, and at most.
const BYTES: [usize; 2] = [4 << 10, 8 << 20];
/// What a transfer takes at least, or more is sent.
const LONG: Duration = Duration::from_millis(40);

/// Measures the link to a server of this library, for [`Link::speed`](crate::plan::Link::speed): the median of fifteen round
/// trips, and how fast bytes go there and come back, up to 8 MiB of them, or as many as the server takes at once.
///
/// # Errors
/// [`ErrorKind::PeerLost`](crate::ErrorKind::PeerLost) where the server cannot be reached in time;
/// [`ErrorKind::PeerFailed`](crate::ErrorKind::PeerFailed) where it refuses, and where it sends nothing back, as LARQL's;
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a key that no header can hold, and for addresses of
/// gRPC; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
pub fn measure_link(address: &Address, options: &ConnectOptions) -> Result<LinkSpeed> {
    super::expect_http(address)?;
    let target = target(address, options)?;
    let lost = |what: &'static str| move |failed: super::Failed| failed.into_error(address, what);
    let measure = async {
        let opened = tokio::time::timeout(options.connect_timeout, Connection::open(&target)).await;
        let opened = opened.map_err(|_| Ended::Late.in_reaching(address, options))?;
        let mut connection = opened.map_err(lost("cannot be reached"))?;
        let mut trips = Vec::with_capacity(TRIPS);
        // The first one finds nothing prepared.
        for _ in 0..=TRIPS {
            let start = Instant::now();
            connection.ask(&target, &echo(0)).await.map_err(lost("was lost"))?.expect_echo(address, 0)?;
            trips.push(start.elapsed());
        }
        trips.remove(0);
        trips.sort_unstable();
        let round_trip = trips[TRIPS / 2];
        let [mut bytes, most] = BYTES;
        let mut rate = f64::INFINITY;
        while bytes <= most {
            let start = Instant::now();
            let answer = connection.ask(&target, &echo(bytes)).await.map_err(lost("was lost"))?;
            let taken = start.elapsed();
            if answer.status == StatusCode::PAYLOAD_TOO_LARGE && rate.is_finite() {
                break;
            }
            answer.expect_echo(address, bytes)?;
            let crossing = taken.saturating_sub(round_trip).max(Duration::from_nanos(1));
            rate = 2.0 * bytes as f64 / crossing.as_secs_f64();
            if taken >= LONG {
                break;
            }
            bytes *= 2;
        }
        Ok(LinkSpeed::new(round_trip.as_secs_f64(), rate))
    };
    let until = Until { cancel: &options.cancel, deadline: None, patience: after(options.timeout) };
    let measured = Runtime::new()?.wait(until.wait(measure))?;
    measured.unwrap_or_else(|ended| Err(ended.into_error(address, "to answer")))
}

/// So many bytes, to be sent back.
fn echo(bytes: usize) -> Ask {
    Ask {
        method: Method::POST,
        path: "/v1/echo",
        content: Some("application/octet-stream"),
        accept: None,
        body: Bytes::from(vec![0; bytes]),
        most: bytes.saturating_add(WORDS),
    }
}

impl Answer {
    fn expect_echo(&self, address: &Address, bytes: usize) -> Result<()> {
        if self.status == StatusCode::NOT_FOUND {
            let message = "expected a server of this library, found one that sends nothing back".to_owned();
            return Err(failed(address, message).with_hint("say by hand how fast the link is"));
        }
        self.expect_ok(address)?;
        match self.body.len() == bytes {
            true => Ok(()),
            false => Err(failed(address, format!("expected {bytes} bytes, found {}", self.body.len()))),
        }
    }
}
