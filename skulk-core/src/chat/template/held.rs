//! How large is a value that a template makes, and how often may the engine go through it?
//!
//! Values of templates share what they hold, so that a few lines make one that has no end when it is gone through: by
//! comparing, printing or hashing, which cost no fuel. What holds others is therefore measured as it is made, with
//! what it shares as often as it is there, and pays by its size, texts included, whenever it is gone through. Namespaces,
//! which alone can change, are held by nothing: so nothing holds itself.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{DynObject, Enumerator, Kwargs, Object, ObjectRepr, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters, functions};

use super::cost;
use super::generator::is_generator;

/// The [`Meter`] among a rendering's variables; templates cannot spell it.
pub(super) const METER: &str = "the meter";
/// Values within a value: more than a conversation has.
const NODES_MAX: usize = 1 << 17;
/// Bytes of texts within a value: as many as a rendering may write.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of texts that are gone through as fast as a value.
const BYTES_PER_STEP: usize = 256;
/// Of tuples, which pay only as they are made or compared.
const TUPLE_MAX: usize = 1 << 10;
/// Values within each other.
const DEPTH_MAX: usize = 256;
/// Values that all that is gone through has, in one rendering.
const STEPS: u64 = 1 << 26;

/// What is left of [`STEPS`].
#[derive(Debug)]
pub(super) struct Meter(AtomicU64);

impl Default for Meter {
    fn default() -> Self {
        Self(AtomicU64::new(STEPS))
    }
}

impl Meter {
    /// Whether the last step was taken.
    pub(super) fn is_spent(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, steps: usize) -> bool {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(steps as u64);
        self.0.store(left, Ordering::Relaxed);
        left > 0
    }
}

impl Object for Meter {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// A list or a dictionary that pays.
struct Held {
    inner: DynObject,
    size: Size,
    meter: Arc<Meter>,
}

/// How large a value is.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) nodes: usize,
    /// Of its texts.
    pub(super) bytes: usize,
    depth: usize,
}

impl Size {
    fn steps(self) -> usize {
        self.nodes + self.bytes / BYTES_PER_STEP
    }

    fn is_endless(self) -> bool {
        self.nodes > NODES_MAX || self.bytes > BYTES_MAX
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl Object for Held {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.inner.repr()
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.inner.get_value(key)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        self.inner.get_value_by_str(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.meter.take(self.size.steps()) {
            true => self.inner.enumerate(),
            false => Enumerator::Iter(Box::new(std::iter::once(Value::from(endless())))),
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.inner.enumerator_len()
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.inner.is_true()
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        // Which may be a function that it holds.
        self.inner.call_method(state, method, args)
    }
}

pub(super) fn endless() -> Error {
    Error::from(ErrorKind::OutOfFuel)
}

/// What `value` is where it is held.
pub(super) fn inner(value: &Value) -> Option<&DynObject> {
    value.downcast_object_ref::<Held>().map(|held| &held.inner)
}

/// `value`, which pays from now on; an error where it is too large or holds what can change.
pub(super) fn held(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    let Some(object) = value.as_object() else { return Ok(value) };
    if object.is::<Held>() {
        return Ok(value);
    }
    let size = size(state, &value)?;
    if value.is_tuple() {
        cost::pay(state, size.bytes)?;
        return if size.nodes > TUPLE_MAX { Err(endless()) } else { Ok(value) };
    }
    let inner = match object.repr() {
        ObjectRepr::Plain => return Ok(value),
        // Sums and slices would hold on to what they are of.
        ObjectRepr::Iterable if !is_generator(&value) => {
            let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
            DynObject::new(Arc::new(items))
        }
        _ => object.clone(),
    };
    let meter = state.lookup(METER).and_then(|meter| meter.downcast_object::<Meter>());
    let meter = meter.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "there is no meter"))?;
    Ok(Value::from_object(Held { inner, size, meter }))
}

/// How large `value` is; an error where it is too large or holds what can change.
pub(super) fn size(state: &State<'_, '_>, value: &Value) -> Result<Size, Error> {
    let mut walked = 0;
    let size = measure(value, 0, &mut walked)?;
    state.consume_fuel(walked as u64 / 32)?;
    Ok(size)
}

/// Likewise, with the steps that it takes added to `walked`: one for a value, and more for the text of a key, which is
/// hashed.
fn measure(value: &Value, depth: usize, walked: &mut usize) -> Result<Size, Error> {
    *walked += 1;
    let mut size = Size { nodes: 1, bytes: value.as_str().map_or(0, str::len), depth: 0 };
    let Some(object) = value.as_object() else { return Ok(size) };
    if let Some(held) = object.downcast_ref::<Held>() {
        size = held.size;
    } else if changes(object) {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value cannot hold a namespace or a loop"));
    } else if depth < DEPTH_MAX {
        let mut add = |item: &Value, walked: &mut usize| {
            let item = measure(item, depth + 1, walked)?;
            size.nodes += item.nodes;
            size.bytes += item.bytes;
            size.depth = size.depth.max(item.depth + 1);
            if size.is_endless() { Err(endless()) } else { Ok(()) }
        };
        match value.kind() {
            ValueKind::Map => object.try_iter_pairs().into_iter().flatten().try_for_each(|(key, item)| {
                *walked += key.as_str().map_or(0, str::len) / 2;
                add(&key, walked)?;
                add(&item, walked)
            })?,
            _ => object.try_iter().into_iter().flatten().try_for_each(|item| add(&item, walked))?,
        }
    }
    if depth + size.depth >= DEPTH_MAX || size.is_endless() { Err(endless()) } else { Ok(size) }
}

/// An error where what `value` holds is more than a value can hold.
pub(super) fn within(value: &Value) -> Result<(), Error> {
    if value.len().is_some_and(|len| len > NODES_MAX) { Err(endless()) } else { Ok(()) }
}

/// Whether this is one of the engine's own objects that are not what they were a moment ago.
fn changes(object: &DynObject) -> bool {
    let name = object.type_name();
    ["::Namespace", "::Loop"].iter().any(|end| name.ends_with(end))
}

fn namespace(state: &State<'_, '_>, fields: Option<ValueOrKwargs>) -> Result<Value, Error> {
    if let Some(fields) = fields.clone() {
        held(state, fields.into_value())?;
    }
    functions::namespace(fields)
}

fn dict(state: &State<'_, '_>, value: Option<Value>, update: Kwargs) -> Result<Value, Error> {
    held(state, functions::dict(value, update)?)
}

/// Sets what makes values that hold others.
pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_function("namespace", namespace);
    environment.add_function("dict", dict);
    // Jinja 2 has them not, and what they make has no bounds.
    environment.remove_global("debug");
    for name in ["chain", "zip"] {
        environment.remove_filter(name);
    }
    environment.add_filter(
        "batch",
        |state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            within(&value)?;
            held(state, filters::batch(state, value, count, fill)?)
        },
    );
    environment.add_filter(
        "slice",
        |state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            within(&value)?;
            held(state, filters::slice(state, value, count, fill)?)
        },
    );
    environment.add_filter(
        "groupby",
        |state: &State<'_, '_>, value: Value, attribute: Option<&str>, options: Kwargs| {
            state.consume_fuel(value.len().unwrap_or_default() as u64)?;
            cost::of_order(state, &value)?;
            cost::of_path(attribute, &options)?;
            held(state, filters::groupby(value, attribute, options)?)
        },
    );
}
