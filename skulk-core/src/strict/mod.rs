//! What is wrong with a document? Strict reading of TOML and JSON that finds every fault, not only the first: cards and
//! placements.

mod fault;
mod reader;
mod tree;

pub use fault::{Fault, FaultKind};

pub(crate) use fault::Document;
#[cfg(test)]
pub(crate) use reader::snake_case;
pub(crate) use reader::{Bounds, Fields, Leaf, Reader, Section, Step, has_field};
pub(crate) use tree::Tree;

/// Reads a type field by field. A field is required unless it has a default or its type says otherwise; `min` and
/// `max` are its [`Bounds`], and `where` names the rules between fields.
macro_rules! read_fields {
    ($name:ident $(where $rules:path)? {
        $($field:ident: $type:ty $(, min $min:literal)? $(, max $max:expr)? $(, or $default:expr)?;)*
    }) => {
        impl $crate::strict::Section for $name {
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn of<'a>(
                fields: &$crate::strict::Fields<'a>,
                reader: &mut $crate::strict::Reader<'a>,
            ) -> Option<Self> {
                $(
                    let bounds = $crate::strict::Bounds {
                        least: $crate::strict::option!($($min)?),
                        most: $crate::strict::option!($($max)?),
                    };
                    let $field: Option<$type> =
                        fields.read(stringify!($field), bounds, $crate::strict::option!($(|| $default)?), reader);
                )*
                $($rules(fields, reader);)?
                Some(Self { $($field: $field?,)* })
            }
        }
    };
}

/// What may be left out of a macro's call.
macro_rules! option {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

pub(crate) use option;
pub(crate) use read_fields;
