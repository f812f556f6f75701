//! How careful is a plan with memory?

use serde::Deserialize;

use crate::macros::closed_set;

closed_set! {
    /// How careful a plan is with memory.
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Strictness {
        /// With margins that were enough on every machine seen: weights count 1.3 times (GGUF 1.1 times), and
        /// no more than 75 % of main memory or 90 % of an accelerator's is used.
        #[default]
        Safe = "safe",
        /// Weights count once, and 90 % of main memory may be used even where other programs hold some.
        Relaxed = "relaxed",
        /// Memory is no reason to refuse. The report says what is over its budget, and by how much.
        Force = "force",
    }
}
