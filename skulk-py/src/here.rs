//! Is this the process in which something was made? One that Python forks has a copy, and none of the threads behind it.

use pyo3::prelude::*;
use skulk::{Error, ErrorKind};

use crate::error::raise;

/// What the process that made it may use, and others only leave alone: they would wait for threads without end.
pub(crate) struct Here<T> {
    held: Option<T>,
    process: u32,
}

impl<T> Here<T> {
    pub(crate) fn new(held: T) -> Self {
        Self { held: Some(held), process: std::process::id() }
    }

    /// What it holds; `None` in another process.
    pub(crate) fn here(&self) -> Option<&T> {
        self.held.as_ref().filter(|_| self.process == std::process::id())
    }

    /// The same; an error in another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.here().ok_or_else(|| {
            let message =
                "expected something of this process, found what another one made that forked this one";
            let error = Error::new(ErrorKind::InvalidArgument, message);
            raise(error.with_hint("load the model in the process that uses it, or spawn processes"))
        })
    }
}

impl<T> Drop for Here<T> {
    fn drop(&mut self) {
        if self.here().is_none() {
            std::mem::forget(self.held.take());
        }
    }
}
