//! How do answers about a vindex cross? Into the dataclasses of `skulk.vindex`.

use pyo3::prelude::*;
use skulk::browse::{
    Description, Edge, Feature, FeatureHit, Label, Probe, Relation, Relations, Selected, Selection, WalkHit,
};
use skulk::vindex::VindexBands;

use crate::convert::range;
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
    let edge = |edge: &Edge| {
        let Edge { target, relation, also, .. } = edge;
        let (place, source) = ((edge.layer, edge.feature), edge.source.map(|source| source.as_str()));
        let (first, last) = (edge.layer_min, edge.layer_max);
        let fields =
            (target, edge.gate_score, place.0, place.1, relation, source, first, last, edge.count, also);
        data(py, "Edge", fields)
    };
    let edges = found.edges.iter().map(edge).collect::<PyResult<Vec<_>>>()?;
    data(py, "Description", (&found.entity, &found.model, edges))
}

pub(crate) fn feature<'py>(py: Python<'py>, feature: &Feature) -> Any<'py> {
    let token =
        feature.tokens.iter().map(|token| data(py, "FeatureToken", (token.id.0, &token.text, token.logit)));
    let tokens = token.collect::<PyResult<Vec<_>>>()?;
    let label = |label: &Label| data(py, "Label", (&label.name, label.source.as_str()));
    let label = feature.label.as_ref().map(label).transpose()?;
    let Feature { layer, feature, top_token, top_token_id, c_score, .. } = feature;
    data(py, "Feature", (*layer, *feature, top_token, top_token_id.0, *c_score, tokens, label))
}

pub(crate) fn selection<'py>(py: Python<'py>, found: &Selection) -> Any<'py> {
    let one = |one: &Selected| {
        data(py, "Selected", (one.layer, one.feature, &one.target, one.c_score, &one.relation))
    };
    let features = found.features.iter().map(one).collect::<PyResult<Vec<_>>>()?;
    data(py, "Selection", (features, found.total))
}

pub(crate) fn relations<'py>(py: Python<'py>, found: &Relations) -> Any<'py> {
    let relation = |relation: &Relation| {
        let Relation { name, count, max_score, min_layer, max_layer, examples, .. } = relation;
        data(py, "Relation", (name, *count, *max_score, *min_layer, *max_layer, examples))
    };
    let probe = |probe: &Probe| data(py, "Probe", (&probe.name, probe.count));
    let relations = found.relations.iter().map(relation).collect::<PyResult<Vec<_>>>()?;
    let probes = found.probes.iter().map(probe).collect::<PyResult<Vec<_>>>()?;
    data(py, "Relations", (relations, found.total, probes, found.probe_count))
}
