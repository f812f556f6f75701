//! Where does reading stand in a document, which faults are known, and which values does each kind of field take?

use std::collections::{BTreeMap, BTreeSet};

use super::fault::{Fault, FaultKind};
use super::tree::{SHOWN, Tree, clip};

/// What a field's value is read with, one kind of value each.
pub(crate) trait Leaf: Sized {
    /// Faults of a list's items name the item; otherwise the list.
    const NAMED_IN_LISTS: bool = true;

    /// The value, or `None` once its faults are noted.
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self>;

    /// The value of a field without a default that is not there.
    fn absent() -> Option<Self> {
        None
    }
}

/// A type that is read field by field.
pub(crate) trait Section: Sized {
    /// All fields it has, in snake_case.
    const FIELDS: &'static [&'static str];

    /// The section with these fields, or `None` once their faults are noted.
    fn of<'a>(fields: &Fields<'a>, reader: &mut Reader<'a>) -> Option<Self>;
}

impl<T: Section> Leaf for T {
    fn read<'a>(tree: &'a Tree, _: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        let fields = reader.fields(tree, Self::FIELDS)?;
        Self::of(&fields, reader)
    }
}

/// Which values a field may have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds {
    /// The least number. 1: a text must not be empty.
    pub(crate) least: Option<i64>,
    /// The largest whole number. All of [`u64`] are read only where that is said, as TOML has no more than [`i64`].
    pub(crate) most: Option<u64>,
}

/// One step into a document: a field, and its place among its section's; or an item's place.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    Field(&'a str, usize),
    Item(usize),
}

/// Faults that are kept: a document of any length has no more of them in memory.
pub(super) const MOST_FAULTS: usize = 1000;

/// Where reading stands in the document, and the faults so far.
#[derive(Default)]
pub(crate) struct Reader<'a> {
    path: Vec<Step<'a>>,
    /// With their places in the document.
    faults: Vec<(Vec<usize>, Fault)>,
}

impl<'a> Reader<'a> {
    /// Notes a fault of the value that is being read.
    pub(crate) fn fault(&mut self, kind: FaultKind, found: impl Into<String>, allowed: impl Into<String>) {
        if self.faults.len() == MOST_FAULTS {
            return;
        }
        let names = self.path.iter().map(|step| match step {
            // Long names are cut: a text may have many faults below one.
            Step::Field(name, _) => clip(name, SHOWN).escape_debug().to_string(),
            Step::Item(index) => index.to_string(),
        });
        let places = self.path.iter().map(|step| match step {
            Step::Field(_, index) | Step::Item(index) => *index,
        });
        let field = names.collect::<Vec<_>>().join(".");
        let fault = Fault { field, kind, found: found.into(), allowed: allowed.into() };
        self.faults.push((places.collect(), fault));
    }

    pub(crate) fn mistyped(&mut self, tree: &Tree, allowed: &str) {
        self.fault(FaultKind::Type, tree.show(), allowed);
    }

    /// Reads what is one step further in.
    pub(crate) fn inside<T>(&mut self, step: Step<'a>, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let value = read(self);
        self.path.pop();
        value
    }

    /// One of a closed set of values.
    pub(crate) fn name<T: Copy>(&mut self, tree: &Tree, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
        let found = match tree {
            Tree::Text(text) => all.iter().copied().find(|value| name(*value) == text),
            _ => None,
        };
        if found.is_none() {
            let kind = if matches!(tree, Tree::Text(_)) { FaultKind::Value } else { FaultKind::Type };
            let names: Vec<String> = all.iter().map(|value| format!("\"{}\"", name(*value))).collect();
            self.fault(kind, tree.show(), format!("one of {}", names.join(", ")));
        }
        found
    }

    fn items<T: Leaf>(&mut self, tree: &'a Tree, bounds: Bounds) -> Option<Vec<T>> {
        let Tree::List(items) = tree else {
            self.mistyped(tree, "a list");
            return None;
        };
        // Every item is read before any fault ends it.
        let values: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, item)| match T::NAMED_IN_LISTS {
                true => self.inside(Step::Item(index), |reader| T::read(item, bounds, reader)),
                false => T::read(item, bounds, self),
            })
            .collect();
        values.into_iter().collect()
    }

    /// The given fields of a section, once unknown ones are noted. `names` are all fields it has, in snake_case.
    pub(crate) fn fields(&mut self, tree: &'a Tree, names: &[&'static str]) -> Option<Fields<'a>> {
        let Tree::Table(entries) = tree else {
            self.mistyped(tree, "a table");
            return None;
        };
        let mut given: Vec<Option<Entry<'a>>> = vec![None; names.len()];
        for (index, (key, value)) in entries.iter().enumerate() {
            let entry = Entry { key, index, value };
            let Some(slot) = snake_case(key).and_then(|key| names.iter().position(|name| *name == key))
            else {
                let allowed = format!("one of {}", names.join(", "));
                self.inside(entry.step(), |r| r.fault(FaultKind::Unknown, clip(key, SHOWN), allowed));
                continue;
            };
            let Some(first) = given[slot] else {
                given[slot] = Some(entry);
                continue;
            };
            // Of two spellings the TOML one is too many, wherever it stands.
            let (kept, extra) = if key.contains('_') { (first, entry) } else { (entry, first) };
            let (kept, extra) = if key == first.key { (first, entry) } else { (kept, extra) };
            let allowed = format!("it once, found {} as well", kept.key);
            self.inside(extra.step(), |r| r.fault(FaultKind::Unknown, extra.value.show(), allowed));
            given[slot] = Some(kept);
        }
        Some(Fields { names: names.to_vec(), given, len: entries.len() })
    }

    /// The faults, the first [`MOST_FAULTS`] at most, in the document's order.
    pub(crate) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.faults.into_iter().map(|(_, fault)| fault).collect()
    }
}

/// `nLayers` as `n_layers`; a key of neither spelling is none.
pub(crate) fn snake_case(key: &str) -> Option<String> {
    let upper = key.contains(|c: char| c.is_ascii_uppercase());
    if upper && key.contains('_') {
        return None;
    }
    let mut snake = String::with_capacity(key.len() + 4);
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    Some(snake)
}

/// Whether a value has a field of this name, given in snake_case, in either spelling.
pub(crate) fn has_field(tree: &Tree, name: &str) -> bool {
    let is_it = |(key, _): &(String, Tree)| snake_case(key).is_some_and(|key| key == name);
    matches!(tree, Tree::Table(entries) if entries.iter().any(is_it))
}

/// A field that the document gives.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    index: usize,
    value: &'a Tree,
}

impl<'a> Entry<'a> {
    fn step(&self) -> Step<'a> {
        Step::Field(self.key, self.index)
    }
}

/// The fields that a section of the document gives.
pub(crate) struct Fields<'a> {
    names: Vec<&'static str>,
    given: Vec<Option<Entry<'a>>>,
    /// Fields that the document has in this section, whatever they are.
    len: usize,
}

impl<'a> Fields<'a> {
    fn entry(&self, name: &str) -> Option<Entry<'a>> {
        let slot = self.names.iter().position(|known| *known == name)?;
        self.given.get(slot).copied().flatten()
    }

    /// The value as it stands in the document.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Tree> {
        self.entry(name).map(|entry| entry.value)
    }

    /// Reads one field. One that is not there has its default; without any it is noted as missing.
    pub(crate) fn read<T: Leaf>(
        &self,
        name: &'static str,
        bounds: Bounds,
        default: Option<fn() -> T>,
        reader: &mut Reader<'a>,
    ) -> Option<T> {
        if let Some(entry) = self.entry(name) {
            return reader.inside(entry.step(), |reader| T::read(entry.value, bounds, reader));
        }
        let value = default.map(|default| default()).or_else(T::absent);
        if value.is_none() {
            let allowed = "a value: the field is required";
            reader.inside(Step::Field(name, self.len), |r| r.fault(FaultKind::Missing, "", allowed));
        }
        value
    }

    /// Notes a fault of a field that is there.
    pub(crate) fn fault(&self, name: &str, kind: FaultKind, allowed: &str, reader: &mut Reader<'a>) {
        if let Some(entry) = self.entry(name) {
            reader.inside(entry.step(), |reader| reader.fault(kind, entry.value.show(), allowed));
        }
    }
}

/// A whole number from `least` to the largest that TOML has.
fn integer<'a>(tree: &'a Tree, least: i64, reader: &mut Reader<'a>) -> Option<i64> {
    let allowed = match least {
        i64::MIN => "a whole number of 64 bits".to_owned(),
        _ => format!("a whole number of {least} or more"),
    };
    match tree {
        Tree::Int(value) if *value >= least => return Some(*value),
        Tree::Int(_) => reader.fault(FaultKind::Range, tree.show(), allowed),
        Tree::Huge(_) => reader.fault(FaultKind::Range, tree.show(), "a whole number of 64 bits"),
        _ => reader.mistyped(tree, &allowed),
    }
    None
}

impl Leaf for i64 {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        integer(tree, bounds.least.unwrap_or(i64::MIN), reader)
    }
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl Leaf for $type {
            fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
                let value = match tree {
                    Tree::Huge(digits) if bounds.most == Some(u64::MAX) => digits.parse().ok(),
                    _ => None,
                };
                let value = value.or_else(|| {
                    u64::try_from(integer(tree, bounds.least.unwrap_or(0), reader)?).ok()
                })?;
                let most = bounds.most.unwrap_or(u64::MAX).min(<$type>::MAX as u64);
                if value > most {
                    let allowed = format!("a whole number of at most {most}");
                    reader.fault(FaultKind::Range, tree.show(), allowed);
                    return None;
                }
                <$type>::try_from(value).ok()
            }
        }
    )*};
}

unsigned!(u16, u64, usize);

impl Leaf for f64 {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        let least = bounds.least.map_or(f64::NEG_INFINITY, |least| least as f64);
        let value = match tree {
            Tree::Float(value) => *value,
            Tree::Int(value) => *value as f64,
            _ => {
                reader.mistyped(tree, "a number");
                return None;
            }
        };
        if !value.is_finite() || value < least {
            reader.fault(FaultKind::Range, tree.show(), format!("a finite number of {least} or more"));
            return None;
        }
        Some(value)
    }
}

impl Leaf for bool {
    fn read<'a>(tree: &'a Tree, _: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        if let Tree::Bool(value) = tree {
            return Some(*value);
        }
        reader.mistyped(tree, "true or false");
        None
    }
}

impl Leaf for String {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        match tree {
            Tree::Text(text) if text.is_empty() && bounds.least == Some(1) => {
                reader.fault(FaultKind::Value, tree.show(), "a name");
            }
            Tree::Text(text) => return Some(text.clone()),
            _ => reader.mistyped(tree, "text"),
        }
        None
    }
}

impl<T: Leaf> Leaf for Option<T> {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        match tree {
            Tree::Null => Some(None),
            _ => T::read(tree, bounds, reader).map(Some),
        }
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: Leaf> Leaf for Vec<T> {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        reader.items(tree, bounds)
    }
}

impl<T: Leaf + Ord> Leaf for BTreeSet<T> {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        Some(reader.items(tree, bounds)?.into_iter().collect())
    }
}

/// Entries whose keys are names.
impl<K: Ord + From<String>, T: Leaf> Leaf for BTreeMap<K, T> {
    fn read<'a>(tree: &'a Tree, bounds: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
        let Tree::Table(entries) = tree else {
            reader.mistyped(tree, "a table");
            return None;
        };
        let mut seen = BTreeSet::new();
        let read = |(index, (key, value)): (usize, &'a (String, Tree))| {
            reader.inside(Step::Field(key, index), |reader| {
                if key.is_empty() {
                    reader.fault(FaultKind::Value, "an empty one", "names as keys");
                } else if !seen.insert(key) {
                    reader.fault(FaultKind::Unknown, value.show(), "it once");
                }
                T::read(value, bounds, reader).map(|value| (K::from(key.clone()), value))
            })
        };
        let values: Vec<Option<(K, T)>> = entries.iter().enumerate().map(read).collect();
        values.into_iter().collect()
    }
}
