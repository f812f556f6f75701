//! What are features said to mean? Labels that probes confirmed, and names of the clusters that features fall into.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::map_file;
use crate::error::{Error, ErrorKind, Result};
use crate::macros::closed_set;
use crate::vindex::files::{CLUSTERS, FEATURE_CLUSTERS, LABELS};

/// What a feature is said to mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Label {
    /// A relation, e.g. `capital`.
    pub name: String,
    /// Who says so.
    pub source: LabelSource,
}

closed_set! {
    /// Where a label comes from.
    pub enum LabelSource {
        /// A probe of the model confirmed it: `feature_labels.json`.
        Probe = "probe",
        /// It is the name of the feature's cluster: `relation_clusters.json` and `feature_clusters.jsonl`.
        Cluster = "cluster",
    }
}

/// A layer and a feature in it.
type Place = (usize, usize);

/// All labels of a folder; none where it has no such files.
#[derive(Debug, Default)]
pub(super) struct Labels {
    probes: BTreeMap<Place, String>,
    clusters: Vec<String>,
    /// The cluster of each feature.
    assigned: BTreeMap<Place, usize>,
}

impl Labels {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut labels = Self::default();
        if let Some(text) = map_file(folder, LABELS)? {
            // Other keys, and values that are no text, are no labels.
            let label = |(key, value): (String, Value)| Some((place(&key)?, value.as_str()?.to_owned()));
            let expected = "an object of labels by feature, as {\"L26_F9515\": \"capital\"}";
            let all: Map<String, Value> = json(&text, &folder.join(LABELS), expected)?;
            labels.probes = all.into_iter().filter_map(label).collect();
        }
        if let Some(text) = map_file(folder, CLUSTERS)? {
            let expected = "an object whose field `labels` is a list of strings";
            labels.clusters = json::<Clusters>(&text, &folder.join(CLUSTERS), expected)?.labels;
        }
        if let Some(text) = map_file(folder, FEATURE_CLUSTERS)? {
            each_line(&text, &folder.join(FEATURE_CLUSTERS), |line: Assigned| {
                labels.assigned.insert((line.layer, line.feature), line.cluster);
            })?;
        }
        Ok(labels)
    }

    /// The label that a probe confirmed.
    pub(super) fn probe(&self, layer: usize, feature: usize) -> Option<&str> {
        self.probes.get(&(layer, feature)).map(String::as_str)
    }

    /// The labels that probes confirmed.
    pub(super) fn probes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.probes.values().map(String::as_str)
    }

    /// The label that a probe confirmed, else the name of the cluster.
    pub(super) fn label(&self, layer: usize, feature: usize) -> Option<Label> {
        if let Some(name) = self.probe(layer, feature) {
            return Some(Label { name: name.to_owned(), source: LabelSource::Probe });
        }
        let name = self.clusters.get(*self.assigned.get(&(layer, feature))?)?.clone();
        Some(Label { name, source: LabelSource::Cluster })
    }
}

/// Calls `each` with what each line that is not empty says.
fn each_line<T: DeserializeOwned>(text: &[u8], path: &Path, mut each: impl FnMut(T)) -> Result<()> {
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let expected = "lines of objects with whole numbers `l`, `f` and `c`: layer, feature and cluster";
            each(serde_json::from_slice(line).map_err(|e| broken(path, expected, at + 1, &e))?);
        }
    }
    Ok(())
}

/// Something else stands there than the file is to hold.
fn broken(path: &Path, expected: &str, line: usize, cause: &serde_json::Error) -> Error {
    let found = match cause.classify() {
        Category::Data => "other JSON",
        Category::Eof => "the end of the text",
        Category::Syntax | Category::Io => "what is no JSON",
    };
    Error::new(ErrorKind::CheckpointInvalid, format!("expected {expected}, found {found}"))
        .with("file", path.display())
        .with("line", line)
        .with("column", cause.column())
        .with_hint("the file is damaged or cut off: fetch it again, or remove it to do without what it says")
}

fn json<'a, T: Deserialize<'a>>(text: &'a [u8], path: &Path, expected: &str) -> Result<T> {
    serde_json::from_slice(text).map_err(|e| broken(path, expected, e.line(), &e))
}

/// `relation_clusters.json`; centres, counts and tokens are not needed.
#[derive(Deserialize)]
struct Clusters {
    labels: Vec<String>,
}

/// A line of `feature_clusters.jsonl`.
#[derive(Deserialize)]
struct Assigned {
    #[serde(rename = "l")]
    layer: usize,
    #[serde(rename = "f")]
    feature: usize,
    #[serde(rename = "c")]
    cluster: usize,
}

/// `L26_F9515`: layer and feature.
fn place(key: &str) -> Option<Place> {
    let (layer, feature) = key.split_once('_')?;
    Some((layer.strip_prefix('L')?.parse().ok()?, feature.strip_prefix('F')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn probes_count_before_clusters() {
        let folder = folder(&[
            (
                LABELS,
                r#"{"L1_F2": "capital", "L1_F3": 5, "note": "x", "L1": "y", "L1_F4_": "z", "L0_F9": "borders"}"#,
            ),
            (CLUSTERS, r#"{"k": 2, "centres": [[1.0], [2.0]], "labels": ["a", "b"], "counts": [1, 2]}"#),
            (
                FEATURE_CLUSTERS,
                "{\"l\":1,\"f\":2,\"c\":0}\n{\"l\":1,\"f\":3,\"c\":1}\n{\"l\":1,\"f\":4,\"c\":2}\n",
            ),
        ]);
        let labels = Labels::read(folder.path()).unwrap();
        let label = |name: &str, source| Some(Label { name: name.to_owned(), source });
        assert_eq!(labels.label(1, 2), label("capital", LabelSource::Probe));
        assert_eq!(labels.label(1, 3), label("b", LabelSource::Cluster));
        assert_eq!(labels.label(1, 4), None);
        assert_eq!((labels.probe(1, 3), labels.probe(0, 9)), (None, Some("borders")));
        assert_eq!(labels.probes().collect::<Vec<_>>(), ["borders", "capital"]);
    }

    #[test]
    fn without_files_there_are_none() {
        let labels = Labels::read(folder(&[]).path()).unwrap();
        assert!(labels.label(0, 0).is_none() && labels.probes().len() == 0);
    }

    #[test]
    fn broken_files_are_named() {
        let cases = [
            (LABELS, "[]", 1, "L26_F9515"),
            (LABELS, "{\n\"L0_F0\": \"x\",\n", 3, "found the end of the text"),
            (LABELS, "", 1, "found the end of the text"),
            (LABELS, "labels", 1, "found what is no JSON"),
            (CLUSTERS, "{\"k\": 1}", 1, "`labels` is a list of strings, found other JSON"),
            (CLUSTERS, "{\"labels\": [\"a\",", 1, "column: 16"),
            (FEATURE_CLUSTERS, "{\"l\":1,\"f\":2,\"c\":0}\n{\"l\":1,\"f\":2", 2, "`l`, `f` and `c`"),
            (FEATURE_CLUSTERS, "{\"l\":1,\"f\":2,\"c\":-1}", 1, "found other JSON"),
        ];
        for (name, text, line, words) in cases {
            let error = Labels::read(folder(&[(name, text)]).path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CheckpointInvalid, "{error}");
            assert!(error.to_string().contains(&format!("{name}, line: {line}")), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
