//! Do cards resolve to the profiles of the reference?
