//! Is a handle still open? What it holds until it is closed.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use skulk::{Error, ErrorKind};

use crate::error::raise;
use crate::here::Here;

/// What an object of Python's stands for, until it is closed.
pub(crate) struct Handle<T>(Here<Mutex<Option<T>>>);

impl<T: Clone + Send> Handle<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Here::new(Mutex::new(Some(value))))
    }

    /// What it holds; an error once it was closed, and in another process.
    pub(crate) fn get(&self) -> PyResult<T> {
        let held = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone();
        held.ok_or_else(|| {
            let error = Error::new(ErrorKind::InvalidArgument, "expected something open, found it closed");
            raise(error.with_hint("use it inside its `with` block, or before `close()`"))
        })
    }

    /// Lets go of what it holds. What was made of it, as sessions of a model, goes on.
    pub(crate) fn close(&self, py: Python<'_>) {
        let Some(held) = self.0.here() else { return };
        let held = held.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(held));
    }
}
