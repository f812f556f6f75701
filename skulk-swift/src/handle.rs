//! Is a handle still open? What it holds until it is closed.

use std::sync::{PoisonError, RwLock};

use skulk::{Error, ErrorKind};

use crate::error::Answer;

/// What an object of Swift's stands for, until it is closed.
pub(crate) struct Handle<T>(RwLock<Option<T>>);

impl<T: Clone> Handle<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Some(value)))
    }

    /// What it holds; an error once it was closed.
    pub(crate) fn get(&self) -> Answer<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| {
            let error = Error::new(ErrorKind::InvalidArgument, "expected something open, found it closed");
            error.with_hint("close it when nothing uses it any more").into()
        })
    }

    /// Lets go of what it holds. What was made of it, as sessions of a model, goes on.
    pub(crate) fn close(&self) {
        let held = self.0.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}
