//! Are cards read, refused and written as the reference does?
