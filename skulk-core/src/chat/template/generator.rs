//! What do filters give that Python computes only when it is asked for? Something to go through, which has no length and
//! is no JSON.

use std::sync::Arc;

use minijinja::filters;
use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};

use super::cost;
use super::held::{self, held, within};

/// Values that came out of a filter.
#[derive(Debug)]
struct Generator(Vec<Value>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let this = self.clone();
        let mut at = 0;
        Enumerator::Iter(Box::new(std::iter::from_fn(move || {
            at += 1;
            this.0.get(at - 1).cloned()
        })))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }
}

/// Whether `value` came out of such a filter.
pub(super) fn is_generator(value: &Value) -> bool {
    let is = |object: &DynObject| object.is::<Generator>();
    value.as_object().is_some_and(is) || held::inner(value).is_some_and(is)
}

/// `value`, unless Python cannot go through it.
pub(super) fn iterated(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            Err(Error::new(ErrorKind::InvalidOperation, format!("{} is not iterable", value.kind())))
        }
        _ => Ok(value),
    }
}

fn generator(state: &State<'_, '_>, values: Vec<Value>) -> Result<Value, Error> {
    held(state, Value::from_object(Generator(values)))
}

type Arguments = Rest<ValueOrKwargs>;

/// Sets the filters whose results are computed when they are asked for.
pub(super) fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter("map", |state: &mut State<'_, '_>, value: Value, args: Arguments| {
        cost::of_each(state, &value, &args)?;
        let values = filters::map(state, value, args)?;
        generator(state, values)
    });
    macro_rules! tested {
        ($($name:ident)*) => {
            $(environment.add_filter(
                stringify!($name),
                |state: &mut State<'_, '_>, value: Value, test: Option<std::borrow::Cow<'_, str>>, args: Arguments| {
                    cost::of_each(state, &value, &args)?;
                    let values = filters::$name(state, value, test, args)?;
                    generator(state, values)
                },
            );)*
        };
    }
    tested!(select reject);
    macro_rules! of_attribute {
        ($($name:ident)*) => {
            $(environment.add_filter(
                stringify!($name),
                |state: &mut State<'_, '_>,
                 value: Value,
                 attribute: std::borrow::Cow<'_, str>,
                 test: Option<std::borrow::Cow<'_, str>>,
                 args: Arguments| {
                    cost::of_each(state, &value, &args)?;
                    cost::of_name(&attribute)?;
                    let values = filters::$name(state, value, attribute, test, args)?;
                    generator(state, values)
                },
            );)*
        };
    }
    of_attribute!(selectattr rejectattr);
    environment.add_filter("list", |state: &mut State<'_, '_>, value: Value| {
        within(&value)?;
        filters::list(state, iterated(value)?)
    });
}
