//! Is a reader that polls woken whenever there is something, and never otherwise?

use std::future::poll_fn;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use skulk::{Error, ErrorKind, Event, Generation, LoadOptions, Model, Output, Result};

use crate::generate::common::{OPENING, fresh, greedy, model, one_thread, path};
use crate::generate::wrapped::Wrapped;

/// Long enough for any machine; only a lost wakeup waits for it.
const LOST: Duration = Duration::from_secs(100);

/// A waker that tells how often it was called.
struct Bell(Mutex<Sender<()>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

fn bell() -> (Waker, Receiver<()>) {
    let (sender, rings) = channel();
    (Waker::from(Arc::new(Bell(Mutex::new(sender)))), rings)
}

fn poll(generation: &mut Generation, waker: &Waker) -> Poll<Option<Result<Event>>> {
    generation.poll_event(&mut Context::from_waker(waker))
}

/// The next event or the end, which must wake its reader.
fn next(generation: &mut Generation) -> Option<Result<Event>> {
    let (waker, rings) = bell();
    loop {
        match poll(generation, &waker) {
            Poll::Ready(event) => return event,
            Poll::Pending => rings.recv_timeout(LOST).expect("the wakeup was lost"),
        }
    }
}

/// A model whose steps wait for the permission they get from here, which may be an error.
fn gated() -> (Model, Sender<Result<()>>) {
    let (permit, permits) = channel();
    let permits = Mutex::new(permits);
    // Without a test that permits, steps run on to their end.
    let engine = Wrapped::forward(move |_| permits.lock().unwrap().recv().unwrap_or(Ok(())));
    let options: LoadOptions = one_thread().engine(engine);
    (Model::open(path("stories260K"), &options).unwrap(), permit)
}

#[test]
fn polling_gives_the_same_events_as_iterating() {
    let model = model("stories260K");
    let mut generation = model.generate(OPENING, greedy(40)).unwrap();
    let events: Vec<Event> = std::iter::from_fn(|| next(&mut generation)).map(Result::unwrap).collect();
    let expected = fresh(&model, OPENING, &greedy(40));
    let ids: Vec<_> = events.iter().filter_map(|e| e.token.as_ref()).map(|t| t.id).collect();
    assert_eq!(ids, expected.ids);
    assert!(events.last().unwrap().finish.is_some());
    assert!(next(&mut generation).is_none() && generation.next().is_none());
}

#[test]
fn each_event_wakes_once_and_nothing_else_does() {
    let (model, permit) = gated();
    let mut generation = model.generate(OPENING, greedy(3)).unwrap();
    for left in (0..3).rev() {
        let (waker, rings) = bell();
        for _ in 0..3 {
            assert!(poll(&mut generation, &waker).is_pending());
        }
        assert!(rings.try_recv().is_err(), "woken before there was anything");
        permit.send(Ok(())).unwrap();
        rings.recv_timeout(LOST).unwrap();
        let Poll::Ready(Some(Ok(event))) = poll(&mut generation, &waker) else { panic!("woken for nothing") };
        assert_eq!(event.finish.is_some(), left == 0);
        if left == 0 {
            assert!(matches!(poll(&mut generation, &waker), Poll::Ready(None)));
        }
        drop(waker);
        let end = rings.recv_timeout(LOST);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected), "woken twice, or the waker is kept");
    }
}

#[test]
fn a_later_poll_replaces_the_waker() {
    let (model, permit) = gated();
    let mut generation = model.generate(OPENING, greedy(1)).unwrap();
    let ((first, first_rings), (second, second_rings)) = (bell(), bell());
    assert!(poll(&mut generation, &first).is_pending());
    assert!(poll(&mut generation, &second).is_pending());
    permit.send(Ok(())).unwrap();
    second_rings.recv_timeout(LOST).unwrap();
    assert!(poll(&mut generation, &second).is_ready());
    assert!(first_rings.try_recv().is_err());
}

#[test]
fn cancelling_failing_and_panicking_wake() {
    let cancel = |generation: &Generation, permit: &Sender<Result<()>>| {
        generation.cancel();
        permit.send(Ok(())).unwrap();
    };
    let fail = |_: &Generation, permit: &Sender<Result<()>>| {
        permit.send(Err(Error::new(ErrorKind::EngineFailed, "as planned"))).unwrap();
    };
    type End<'a> = &'a dyn Fn(&Generation, &Sender<Result<()>>);
    let ends: [(End<'_>, ErrorKind); 2] = [(&cancel, ErrorKind::Cancelled), (&fail, ErrorKind::EngineFailed)];
    for (end, kind) in ends {
        let (model, permit) = gated();
        let session = model.session().unwrap();
        let mut generation = session.generate(OPENING, greedy(3)).unwrap();
        let (waker, rings) = bell();
        assert!(poll(&mut generation, &waker).is_pending());
        end(&generation, &permit);
        rings.recv_timeout(LOST).unwrap();
        let Poll::Ready(Some(Err(error))) = poll(&mut generation, &waker) else {
            panic!("expected an error")
        };
        assert_eq!(error.kind(), kind);
        assert!(matches!(poll(&mut generation, &waker), Poll::Ready(None)));
        session.truncate(0).unwrap();
    }
    let engine = Wrapped::forward(|n| {
        assert!(n < 3, "as planned");
        Ok(())
    });
    let model = Model::open(path("stories260K"), &one_thread().engine(engine)).unwrap();
    let mut generation = model.generate(OPENING, greedy(9)).unwrap();
    let ends: Vec<_> =
        std::iter::from_fn(|| next(&mut generation)).map(|e| e.err().map(|e| e.kind())).collect();
    assert_eq!(ends, [None, None, Some(ErrorKind::Internal)]);
}

#[test]
fn no_wakeup_is_lost_among_many_short_generations() {
    let model = model("stories260K");
    let expected = fresh(&model, OPENING, &greedy(2)).ids;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let mut generation = model.generate(OPENING, greedy(2)).unwrap();
                    let events: Vec<_> = std::iter::from_fn(|| next(&mut generation)).collect();
                    let ids: Vec<_> = events.into_iter().map(|e| e.unwrap().token.unwrap().id).collect();
                    assert_eq!(ids, expected);
                }
            });
        }
    });
}

#[test]
fn polling_for_the_output_gives_what_was_not_read() {
    let (model, permit) = gated();
    drop(permit);
    let expected: Output = fresh(&model, OPENING, &greedy(12));
    let mut generation = model.generate(OPENING, greedy(12)).unwrap();
    let first = next(&mut generation).unwrap().unwrap();
    let rest = pollster::block_on(poll_fn(|cx| generation.poll_output(cx))).unwrap();
    assert_eq!(first.text + &rest.text, expected.text);
    assert_eq!(rest.ids, expected.ids[1..]);
    let error = pollster::block_on(poll_fn(|cx| generation.poll_output(cx))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// What a poll for the output has read is not lost when the caller then waits instead.
#[test]
fn output_may_be_polled_first_and_waited_for_later() {
    let (model, permit) = gated();
    let mut generation = model.generate(OPENING, greedy(3)).unwrap();
    let (waker, rings) = bell();
    let cx = &mut Context::from_waker(&waker);
    assert!(generation.poll_output(cx).is_pending());
    permit.send(Ok(())).unwrap();
    rings.recv_timeout(LOST).unwrap();
    assert!(generation.poll_output(cx).is_pending());
    drop(permit);
    let ids = generation.output().unwrap().ids;
    assert_eq!(ids, fresh(&self::model("stories260K"), OPENING, &greedy(3)).ids);
}

/// A waker that holds the last handle drops it on the generation's own thread.
#[test]
fn wakers_may_drop_the_generation() {
    struct Last(Mutex<Option<Generation>>, Sender<()>);
    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
            self.1.send(()).unwrap();
        }
    }
    let (model, permit) = gated();
    let session = model.session().unwrap();
    let (sender, dropped) = channel();
    let last = Arc::new(Last(Mutex::new(Some(session.generate(OPENING, greedy(9)).unwrap())), sender));
    let waker = Waker::from(Arc::clone(&last));
    assert!(poll(last.0.lock().unwrap().as_mut().unwrap(), &waker).is_pending());
    permit.send(Ok(())).unwrap();
    dropped.recv_timeout(LOST).unwrap();
    drop(permit);
    while let Err(error) = session.truncate(0) {
        assert_eq!(error.kind(), ErrorKind::SessionBusy);
        std::thread::yield_now();
    }
}

#[test]
fn a_closed_generation_is_at_its_end() {
    let model = model("stories260K");
    let session = model.session().unwrap();
    let mut generation = session.generate(OPENING, greedy(200)).unwrap();
    assert!(next(&mut generation).unwrap().is_ok());
    generation.close();
    session.truncate(0).unwrap();
    assert!(next(&mut generation).is_none() && generation.next().is_none());
    generation.close();
}
