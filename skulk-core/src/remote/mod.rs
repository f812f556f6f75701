//! Who computes feed-forward blocks on other machines, and how are they asked? The frames that cross.

pub mod wire;
