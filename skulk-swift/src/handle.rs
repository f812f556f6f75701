//! Is a handle still open? What it holds until it is closed.

use std::sync::{PoisonError, RwLock};

use skulk::{Error, ErrorKind};

use crate::error::Answer;

/// What an object of Swift's stands for, until it is closed.
pub(crate) struct Handle<T> {
    held: RwLock<Option<T>>,
    /// What Swift calls it.
    name: &'static str,
}

impl<T: Clone> Handle<T> {
    pub(crate) fn new(name: &'static str, value: T) -> Self {
        Self { held: RwLock::new(Some(value)), name }
    }

    /// What it holds; an error once it was closed.
    pub(crate) fn get(&self) -> Answer<T> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| {
            let message = format!("expected an open {}, found a closed one", self.name);
            let error = Error::new(ErrorKind::InvalidArgument, message);
            error.with_hint("close it when nothing uses it any more").into()
        })
    }

    /// Lets go of what it holds. What was made of it, as sessions of a model, goes on.
    pub(crate) fn close(&self) {
        let held = self.held.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}
