//! How do answers about a vindex cross? Into the dataclasses of `skulk.vindex`.

use pyo3::prelude::*;
use skulk::browse::{Description, Feature, FeatureHit, Label, Relations, Selection, WalkHit};
use skulk::vindex::VindexBands;

use crate::convert::{list, range};
use crate::vindex::data;

type Any<'py> = PyResult<Bound<'py, PyAny>>;

pub(crate) fn bands<'py>(py: Python<'py>, bands: VindexBands) -> Any<'py> {
    let band = |[first, last]: [usize; 2]| range(py, &(first..last.saturating_add(1)));
    data(py, "VindexBands", (band(bands.syntax)?, band(bands.knowledge)?, band(bands.output)?))
}

pub(crate) fn hit<'py>(py: Python<'py>, hit: &FeatureHit) -> Any<'py> {
    data(py, "FeatureHit", (hit.layer, hit.feature, hit.score))
}

pub(crate) fn walk_hit<'py>(py: Python<'py>, hit: &WalkHit) -> Any<'py> {
    data(py, "WalkHit", (hit.layer, hit.feature, hit.gate_score, &hit.target, &hit.relation))
}

pub(crate) fn description<'py>(py: Python<'py>, found: &Description) -> Any<'py> {
    let edges = list(&found.edges, |edge| {
        let source = edge.source.map(|source| source.as_str());
        let (first, last) = (edge.layer_min, edge.layer_max);
        let fields = (
            &edge.target,
            edge.gate_score,
            edge.layer,
            edge.feature,
            &edge.relation,
            source,
            first,
            last,
            edge.count,
            &edge.also,
        );
        data(py, "Edge", fields)
    })?;
    data(py, "Description", (&found.entity, &found.model, edges))
}

pub(crate) fn feature<'py>(py: Python<'py>, feature: &Feature) -> Any<'py> {
    let tokens =
        list(&feature.tokens, |token| data(py, "FeatureToken", (token.id.0, &token.text, token.logit)))?;
    let label = |label: &Label| data(py, "Label", (&label.name, label.source.as_str()));
    let label = feature.label.as_ref().map(label).transpose()?;
    let Feature { layer, feature, top_token, top_token_id, c_score, .. } = feature;
    data(py, "Feature", (*layer, *feature, top_token, top_token_id.0, *c_score, tokens, label))
}

pub(crate) fn selection<'py>(py: Python<'py>, found: &Selection) -> Any<'py> {
    let features = list(&found.features, |one| {
        data(py, "Selected", (one.layer, one.feature, &one.target, one.c_score, &one.relation))
    })?;
    data(py, "Selection", (features, found.total))
}

pub(crate) fn relations<'py>(py: Python<'py>, found: &Relations) -> Any<'py> {
    let relations = list(&found.relations, |word| {
        let (first, last) = (word.min_layer, word.max_layer);
        data(py, "Relation", (&word.name, word.count, word.max_score, first, last, &word.examples))
    })?;
    let probes = list(&found.probes, |probe| data(py, "Probe", (&probe.name, probe.count)))?;
    data(py, "Relations", (relations, found.total, probes, found.probe_count))
}
