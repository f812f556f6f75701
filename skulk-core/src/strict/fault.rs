//! What was expected, and what was found? Faults of a document, and the error that has all of them.

use serde::Serialize;

use super::reader::{Bounds, Leaf, MOST_FAULTS, Reader, Step};
use super::tree::{Tree, clip};
use crate::error::{Error, ErrorKind, Result};
use crate::macros::closed_set;

/// Faults that a message spells out.
const LISTED: usize = 5;
/// Characters of a message about one fault; the list of a section's fields has some 400.
const LONGEST_LINE: usize = 1000;

/// Something wrong with a card or placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Fault {
    /// The field, with its sections, as the document spells it: `runtime.mtp_heads`, `components.0.canShard`. A
    /// missing field is spelled as in TOML; long names are cut.
    pub field: String,
    /// What is wrong.
    pub kind: FaultKind,
    /// What was found; empty for a missing field.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        match self.kind {
            FaultKind::Missing => write!(f, "missing, expected {}", self.allowed),
            FaultKind::Unknown => write!(f, "unknown, expected {}", self.allowed),
            _ => write!(f, "expected {}, found {}", self.allowed, self.found),
        }
    }
}

closed_set! {
    /// What is wrong with a field.
    pub enum FaultKind {
        /// The format has no such field, or it is there twice: in both spellings, or in one.
        Unknown = "unknown",
        /// A required field is not there.
        Missing = "missing",
        /// A value of another type.
        Type = "type",
        /// A number outside its range.
        Range = "range",
        /// None of the values that the format allows.
        Value = "value",
        /// Fields that exclude each other, or one that needs another.
        Conflict = "conflict",
    }
}

/// A kind of document, as its errors name it.
pub(crate) struct Document {
    pub(crate) error: ErrorKind,
    /// With its article.
    pub(crate) name: &'static str,
    /// What to do about faults.
    pub(crate) hint: &'static str,
}

impl Document {
    /// The values of a text in TOML.
    pub(crate) fn toml(&self, text: &str) -> Result<Tree> {
        Tree::from_toml(text).map_err(|syntax| self.syntax("TOML", &syntax))
    }

    /// The values of a text in JSON.
    pub(crate) fn json(&self, text: &str) -> Result<Tree> {
        Tree::from_json(text).map_err(|syntax| self.syntax("JSON", &syntax))
    }

    fn syntax(&self, format: &str, syntax: &super::tree::Syntax) -> Error {
        let message = format!("expected {} in {format}, found: {}", self.name, syntax.message);
        Error::new(self.error, message)
            .with("line", syntax.line)
            .with("column", syntax.column)
            .with_hint("correct the text at this place")
    }

    /// What these values are, or an error with all faults as its detail. `within`: the field that they are.
    pub(crate) fn read<T: Leaf>(&self, tree: &Tree, within: Option<&str>) -> Result<T> {
        let mut reader = Reader::default();
        let value = match within {
            Some(tag) => {
                reader.inside(Step::Field(tag, 0), |reader| T::read(tree, Bounds::default(), reader))
            }
            None => T::read(tree, Bounds::default(), &mut reader),
        };
        let faults = reader.into_faults();
        value.filter(|_| faults.is_empty()).ok_or_else(|| self.invalid(faults))
    }

    /// One error for all faults.
    fn invalid(&self, faults: Vec<Fault>) -> Error {
        let listed = faults.iter().take(LISTED);
        let listed: Vec<String> =
            listed.map(|fault| clip(&fault.to_string(), LONGEST_LINE).into_owned()).collect();
        let more = match faults.len().saturating_sub(LISTED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let count = match faults.len() {
            1 => "one fault".to_owned(),
            MOST_FAULTS => format!("{MOST_FAULTS} faults or more"),
            count => format!("{count} faults"),
        };
        let message = format!("expected {}, found {count}: {}{more}", self.name, listed.join("; "));
        Error::new(self.error, message).with_detail(faults).with_hint(self.hint)
    }
}
