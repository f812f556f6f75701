//! How does a model become a vindex? From any checkpoint that this library reads.

mod source;
