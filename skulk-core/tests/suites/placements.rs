//! Are models placed as the reference does?
