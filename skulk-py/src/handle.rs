//! Is a handle still open? What it holds until it is closed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use skulk::{Error, ErrorKind};

use crate::error::raise;

/// What an object of Python's stands for, until it is closed.
pub(crate) struct Handle<T>(Mutex<Option<T>>);

impl<T: Clone + Send> Handle<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(Some(value)))
    }

    /// What it holds; an error once it was closed.
    pub(crate) fn get(&self) -> PyResult<T> {
        self.lock().clone().ok_or_else(|| {
            let error = Error::new(ErrorKind::InvalidArgument, "expected something open, found it closed");
            raise(error.with_hint("use it inside its `with` block, or before `close()`"))
        })
    }

    /// Lets go of what it holds. What was made of it, as sessions of a model, goes on.
    pub(crate) fn close(&self, py: Python<'_>) {
        let held = self.lock().take();
        py.detach(|| drop(held));
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
