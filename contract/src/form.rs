//! What form must a text have? One of the options that say so.

use skulk::{Constraint, Error, ErrorKind, GenerateOptions};

/// A schema in JSON.
pub(crate) fn schema(json: &str) -> skulk::Result<Constraint> {
    Ok(Constraint::JsonSchema(crate::functions::read("json_schema", json)?))
}

/// Sets the form, which must not be set yet.
pub(crate) fn constrain(options: &mut GenerateOptions, constraint: Constraint) -> skulk::Result<()> {
    if options.constraint.replace(constraint).is_none() {
        return Ok(());
    }
    let message = "expected one of the options that say what form a text has, found several";
    Err(Error::new(ErrorKind::InvalidArgument, message)
        .with("field", "response_format")
        .with_hint("give a schema, a regular expression, a grammar, or a response format"))
}
