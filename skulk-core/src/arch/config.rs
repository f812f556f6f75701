//! How is a field of a config.json read? With its file and name at hand for errors.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::Activation;
use super::ffn::activation;
use crate::error::{Error, ErrorKind, Result};

/// A JSON object of a configuration.
#[derive(Clone, Copy)]
pub(super) struct Config<'a> {
    pub(super) file: &'a PathBuf,
    /// The object's place in the file; empty for the whole.
    pub(super) at: &'a str,
    pub(super) value: &'a Value,
}

impl<'a> Config<'a> {
    pub(super) fn opt(&self, key: &str) -> Option<&'a Value> {
        self.value.get(key).filter(|v| !v.is_null())
    }

    pub(super) fn section(&self, key: &'a str) -> Result<Self> {
        let value = self.opt(key).ok_or_else(|| self.missing(key))?;
        if !value.is_object() {
            return Err(self.wrong(key, "an object", value));
        }
        Ok(Self { file: self.file, at: key, value })
    }

    fn opt_with<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        self.opt(key).map(|v| read(v).ok_or_else(|| self.wrong(key, expected, v))).transpose()
    }

    pub(super) fn opt_usize(&self, key: &str) -> Result<Option<usize>> {
        self.opt_with(key, "a whole number", |v| v.as_u64().and_then(|n| n.try_into().ok()))
    }

    pub(super) fn usize(&self, key: &str) -> Result<usize> {
        self.opt_usize(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn usize_or(&self, key: &str, default: usize) -> Result<usize> {
        Ok(self.opt_usize(key)?.unwrap_or(default))
    }

    /// What stands there; the default where nothing does, none where it is null.
    pub(super) fn usize_unless_null(&self, key: &str, default: usize) -> Result<Option<usize>> {
        if self.is_absent(key) { Ok(Some(default)) } else { self.opt_usize(key) }
    }

    /// Not even null stands there.
    pub(super) fn is_absent(&self, key: &str) -> bool {
        self.value.get(key).is_none()
    }

    /// The numbers of a list; none where the field is absent.
    pub(super) fn usizes(&self, key: &str) -> Result<BTreeSet<usize>> {
        Ok(self.usize_list(key)?.into_iter().collect())
    }

    /// A list; empty where the field is absent.
    pub(super) fn usize_list(&self, key: &str) -> Result<Vec<usize>> {
        let number = |v: &Value| v.as_u64().and_then(|n| n.try_into().ok());
        let list =
            self.opt_with(key, "a list of whole numbers", |v| v.as_array()?.iter().map(number).collect())?;
        Ok(list.unwrap_or_default())
    }

    pub(super) fn opt_f64(&self, key: &str) -> Result<Option<f64>> {
        self.opt_with(key, "a number", Value::as_f64)
    }

    pub(super) fn f64(&self, key: &str) -> Result<f64> {
        self.opt_f64(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn opt_f32(&self, key: &str) -> Result<Option<f32>> {
        Ok(self.opt_f64(key)?.map(|v| v as f32))
    }

    pub(super) fn f32_or(&self, key: &str, default: f32) -> Result<f32> {
        Ok(self.opt_f32(key)?.unwrap_or(default))
    }

    pub(super) fn f32s(&self, key: &str) -> Result<Vec<f32>> {
        let number = |v: &Value| v.as_f64().map(|v| v as f32);
        let list = self.opt_with(key, "a list of numbers", |v| v.as_array()?.iter().map(number).collect())?;
        list.ok_or_else(|| self.missing(key))
    }

    /// A list of numbers, with 0 where null stands.
    pub(super) fn f32s_or_nulls(&self, key: &str) -> Result<Vec<f32>> {
        let number = |v: &Value| if v.is_null() { Some(0.0) } else { v.as_f64().map(|v| v as f32) };
        let list = self.opt_with(key, "a list of numbers", |v| v.as_array()?.iter().map(number).collect())?;
        list.ok_or_else(|| self.missing(key))
    }

    /// A list of strings.
    pub(super) fn strs(&self, key: &str) -> Result<Vec<&'a str>> {
        let list =
            self.opt_with(key, "a list of strings", |v| v.as_array()?.iter().map(Value::as_str).collect())?;
        list.ok_or_else(|| self.missing(key))
    }

    /// A list of `len` flags, each true, false, 0 or 1.
    pub(super) fn flags(&self, key: &str, len: usize) -> Result<Option<Vec<bool>>> {
        let flag = |v: &Value| match v.as_u64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => v.as_bool(),
        };
        let read = |v: &'a Value| v.as_array().filter(|list| list.len() == len)?.iter().map(flag).collect();
        self.opt_with(key, &format!("a list of {len} flags"), read)
    }

    /// Whole numbers, as a list or in a string with commas between them.
    pub(super) fn indices(&self, key: &str) -> Result<Option<BTreeSet<usize>>> {
        let number = |v: &Value| v.as_u64().and_then(|n| n.try_into().ok());
        self.opt_with(key, "whole numbers", |v| match v.as_str() {
            Some(text) => text.split(',').map(|n| n.trim().parse().ok()).collect(),
            None => v.as_array()?.iter().map(number).collect(),
        })
    }

    pub(super) fn opt_str(&self, key: &str) -> Result<Option<&'a str>> {
        self.opt_with(key, "a string", Value::as_str)
    }

    pub(super) fn str(&self, key: &str) -> Result<&'a str> {
        self.opt_str(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        Ok(self.opt_with(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub(super) fn activation_or(&self, key: &'static str, default: Activation) -> Result<Activation> {
        let named = self.opt_str(key)?.map(activation).transpose();
        named
            .map(|a| a.unwrap_or(default))
            .map_err(|e| e.with("file", self.file.display()).with("field", key))
    }

    fn missing(&self, key: &str) -> Error {
        self.error(key, "expected the field, found none".into())
    }

    pub(super) fn wrong(&self, key: &str, expected: &str, found: &Value) -> Error {
        let mut found = found.to_string();
        if found.len() > 80 {
            let end = (0..=80).rev().find(|&i| found.is_char_boundary(i)).unwrap_or(0);
            found.truncate(end);
            found.push('…');
        }
        self.error(key, format!("expected {expected}, found {found}"))
    }

    pub(super) fn error(&self, key: &str, message: String) -> Error {
        let field = if self.at.is_empty() { key.to_owned() } else { format!("{}.{key}", self.at) };
        Error::new(ErrorKind::ConfigInvalid, message)
            .with("file", self.file.display())
            .with("field", field)
            .with_hint(match self.file.file_name().is_some_and(|name| name == crate::vindex::INDEX) {
                true => "the index says too little or is damaged: extract the model again",
                false => "fetch the model's config.json again",
            })
    }
}
