//! What is written once for all types that need it: setters of options, and the names of closed sets.

/// Setters of an options struct, which take `self` and return it.
///
/// `name: Type;` sets the field of that name; `name: Type => value;` computes the value from the argument, which
/// has the field's name too. The type may be `impl Trait`.
macro_rules! setters {
    ($type:ident { $($(#[$meta:meta])* $field:ident: $arg:ty $(=> $value:expr)?;)* }) => {
        impl $type {
            $(
                $(#[$meta])*
                #[must_use]
                pub fn $field(mut self, $field: $arg) -> Self {
                    self.$field = setters!(@value $field $($value)?);
                    self
                }
            )*
        }
    };
    (@value $field:ident) => { $field };
    (@value $field:ident $value:expr) => { $value };
}

/// `Debug` of types of which there is no more to show than their names.
macro_rules! opaque {
    ($type:ident $(<$life:lifetime>)?) => {
        impl std::fmt::Debug for $type $(<$life>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
}

/// An enum whose values have names, the same in every language and file: `ALL`, `as_str`, `Display`, `FromStr`,
/// `Serialize`.
macro_rules! closed_set {
    (
        $(#[$meta:meta])*
        $vis:vis enum $type:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        $vis enum $type { $($(#[$doc])* #[cfg_attr(feature = "schema", schemars(rename = $text))] $name,)* }

        #[allow(unreachable_pub)] // Some sets are their module's own.
        impl $type {
            /// Every value, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in files, messages and other languages.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(name: &str) -> $crate::error::Result<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name).ok_or_else(|| {
                    $crate::error::Error::unknown_name(name, Self::ALL.iter().map(|value| value.as_str()))
                })
            }
        }
    };
}

pub(crate) use closed_set;
pub(crate) use opaque;
pub(crate) use setters;
