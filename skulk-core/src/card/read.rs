//! Is this a model card? Strict reading that finds every fault, not only the first.

/// Something wrong with a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardFault {
    /// The field, with its sections, as the card spells it: `runtime.mtp_heads`, `components.0.canShard`. A missing
    /// field is spelled as in TOML.
    pub field: String,
    /// What is wrong.
    pub kind: FaultKind,
    /// What was found; empty for a missing field.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The card interface has no such field, or it is there in both spellings.
    Unknown,
    /// A required field is not there.
    Missing,
    /// A value of another type.
    Type,
    /// A number outside its range.
    Range,
    /// None of the values that the interface lists.
    Value,
    /// Fields that exclude each other, or one that needs another.
    Conflict,
}
