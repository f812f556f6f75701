//! Which error does a failure become? One, with everything as JSON, and the report of a plan as a handle.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use skulk::{Error, ErrorKind};
use skulk_contract::functions::{self, failure};
use skulk_contract::options::Spelling;

use crate::plan::RawReport;

/// What every function answers.
pub(crate) type Answer<T> = Result<T, RawError>;

/// A failure of the library.
#[derive(Debug, Clone, thiserror::Error, uniffi::Error)]
pub enum RawError {
    /// A failure.
    #[error("{failure}")]
    Failed {
        /// All of it as JSON, as the contract has it.
        failure: String,
        /// Why there is no plan, where that is what failed.
        report: Option<Arc<RawReport>>,
    },
}

impl From<Error> for RawError {
    fn from(error: Error) -> Self {
        let report = error.detail::<skulk::PlanReport>().map(|report| Arc::new(RawReport(report.clone())));
        Self::Failed { failure: failure(&error), report }
    }
}

/// An argument that is not what it should be.
pub(crate) fn invalid(field: &'static str, message: String) -> RawError {
    Error::new(ErrorKind::InvalidArgument, message).with("field", field).into()
}

/// The value that an argument's JSON stands for.
pub(crate) fn read<T: DeserializeOwned>(field: &'static str, json: &str) -> Answer<T> {
    Ok(functions::read(field, json)?)
}

/// Options from their JSON.
pub(crate) fn options<T>(
    json: &str,
    read_all: impl FnOnce(Map<String, Value>, Spelling) -> skulk::Result<T>,
) -> Answer<T> {
    Ok(read_all(read("options", json)?, Spelling::Camel)?)
}
