//! What went wrong? Errors as data.

use std::collections::BTreeMap;

use serde::Serialize;
use skulk::{ContextDetail, Error, ErrorKind, Fault, Output, PlanReport, Retry, ShapeDetail};

use crate::given::Spelling;
use crate::words::told;

/// An error. Its text is all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Failure<'a> {
    /// What kind of error it is, as a name, as in `FileNotFound`.
    pub kind: &'static str,
    /// The kind's code, as in `file.not_found`: the same in every language, and it does not change.
    pub code: &'static str,
    /// What happened.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// Whether trying again can help.
    pub retry: Retry,
    /// What it concerns, by name, as `file` and `field`. Several of one name are one text.
    pub context: BTreeMap<&'static str, String>,
    /// Facts, for the kinds that have any.
    pub detail: Option<FailureDetail<'a>>,
    /// All of it as text, with the errors behind it.
    pub text: String,
}

/// Facts of an error; those of other kinds are not there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FailureDetail<'a> {
    /// All that is wrong with a card, by place in it.
    pub faults: Option<&'a [Fault]>,
    /// Why there is no plan: the report as JSON.
    pub report: Option<String>,
    /// Tokens that a context needs.
    pub needed: Option<usize>,
    /// Tokens that it has.
    pub available: Option<usize>,
    /// Dimensions that a tensor should have.
    pub expected: Option<&'a [usize]>,
    /// Dimensions that it has.
    pub found: Option<&'a [usize]>,
}

impl<'a> Failure<'a> {
    /// The error in a host's words: with options called as it calls them.
    pub fn of(error: &'a Error, spelling: Spelling) -> Self {
        let named = told(error, spelling);
        let mut context = BTreeMap::<_, String>::new();
        for (name, text) in named.context() {
            context
                .entry(*name)
                .and_modify(|all| {
                    all.push_str(", ");
                    all.push_str(text);
                })
                .or_insert_with(|| text.clone());
        }
        let causes = format!("{error:?}").split_off(error.to_string().len());
        Self {
            kind: error.kind().name(),
            code: error.code(),
            message: named.message().to_owned(),
            hint: named.hint().map(str::to_owned),
            retry: error.retry(),
            context,
            detail: FailureDetail::of(error),
            text: format!("{named}{causes}"),
        }
    }
}

impl<'a> FailureDetail<'a> {
    pub(crate) fn of(error: &'a Error) -> Option<Self> {
        let none = Self::default();
        if let Some(faults) = error.detail::<Vec<Fault>>() {
            Some(Self { faults: Some(faults), ..none })
        } else if let Some(report) = error.detail::<PlanReport>() {
            Some(Self { report: Some(report.to_json()), ..none })
        } else if let Some(ContextDetail { needed, available, .. }) = error.detail() {
            Some(Self { needed: Some(*needed), available: Some(*available), ..none })
        } else {
            let ShapeDetail { expected, found, .. } = error.detail()?;
            Some(Self { expected: Some(expected), found: Some(found), ..none })
        }
    }
}

/// What became of one of many: its output, or why there is none.
#[derive(Debug, Serialize)]
pub struct Outcome<'a> {
    output: Option<&'a Output>,
    failure: Option<Failure<'a>>,
}

impl<'a> Outcome<'a> {
    /// The same of all, in their order.
    pub fn all(results: &'a [skulk::Result<Output>], spelling: Spelling) -> Vec<Self> {
        let of = |result: &'a skulk::Result<Output>| Self {
            output: result.as_ref().ok(),
            failure: result.as_ref().err().map(|error| Failure::of(error, spelling)),
        };
        results.iter().map(of).collect()
    }
}

/// Every kind of error with its code.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    ErrorKind::ALL.iter().map(|kind| (kind.name(), kind.code()))
}
