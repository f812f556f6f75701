//! How does Python plan where a model runs? `skulk.plan` and `skulk.Placement`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use skulk::plan::{Cluster, Inventory, Node, memory};
use skulk_contract::by_hand::{self, PlacementOptions};
use skulk_contract::functions;
use skulk_contract::options::{LinkOptions, PlanOptions};
use skulk_contract::price::PriceOptions;
use skulk_contract::{ExpertShard, PlacedStage, Price};

use crate::cancel::CancelToken;
use crate::convert::{each, kind, optional, text, unsigned};
use crate::error::{argument, raise};
use crate::given;
use crate::json::{self, CONTRACT};
use crate::model::placement_of;
use crate::wait::attempt;

/// Which node runs which layers and experts. Made by `skulk.plan`, read by `Placement.from_json`.
#[pyclass(frozen, eq, module = "skulk")]
pub(crate) struct Placement(pub(crate) skulk::Placement);

/// What it says counts, and not why: that is lost where it is written and read again.
impl PartialEq for Placement {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_json() == other.0.to_json()
    }
}

#[pymethods]
impl Placement {
    /// Reads what `to_json` writes, and Skulk 1.3's instances.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &Bound<'_, PyString>) -> PyResult<Self> {
        let text = self::text("text", text)?;
        py.detach(|| skulk::Placement::from_json(&text)).map(Self).map_err(raise)
    }

    /// Stages of so many layers each, one behind the other, on engines by name, as in
    /// `[("wgpu", 20), ("cpu", 12)]`.
    #[staticmethod]
    pub(crate) fn by_counts(counts: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wrong = |found| {
            let message = format!("expected pairs of an engine and its number of layers, found {found}");
            argument("placement", message, None)
        };
        let pair = |pair: Bound<'_, PyAny>| {
            let Ok((engine, layers)) = pair.extract::<(Bound<'_, PyString>, Bound<'_, PyAny>)>() else {
                return Err(wrong(kind(&pair)?));
            };
            Ok((text("placement", &engine)?, unsigned("placement", &layers)?))
        };
        let counts: Vec<(String, usize)> = match each(counts, pair)? {
            Some(counts) => counts,
            None => return Err(wrong(kind(counts)?)),
        };
        by_hand::by_counts(counts).map(Self).map_err(raise)
    }

    /// A placement by hand, of the model of a checkpoint, or of one that a `skulk.Inventory` describes. `options` are those
    /// of `skulk.options.PlacementOptions`; patterns over tensor names need a checkpoint.
    #[staticmethod]
    #[pyo3(signature = (model, **options), text_signature = "(model, *, engine=None, layers=(), experts=(), override_tensors=())")]
    fn build(
        py: Python<'_>,
        model: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let rules = given::options(options, PlacementOptions::read)?;
        let path = model.extract::<PathBuf>().ok();
        let inventory = match path {
            Some(_) => None,
            None => Some(json::read("model", model, "Inventory")?),
        };
        py.detach(|| rules.build(path, inventory)).map(Self).map_err(raise)
    }

    /// The same placement, with the address where `node` serves what this has on it: `http://host:port`, `https://host:port`
    /// or `unix:///path`. None of them is asked before `Model.load`.
    fn with_address(&self, node: &Bound<'_, PyString>, address: &Bound<'_, PyString>) -> PyResult<Self> {
        let (node, address) = (text("node", node)?, text("address", address)?);
        Ok(Self(self.0.clone().with_address(node.as_str(), address)))
    }

    /// Layers of the model.
    #[getter]
    fn n_layers(&self) -> usize {
        self.0.n_layers()
    }

    /// The stages, by rank: of a pipeline, in the order a token passes them.
    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        CONTRACT.many(py, "PlacedStage", self.0.stages().iter().map(PlacedStage::from))
    }

    /// Feed-forward blocks and experts that are elsewhere than their layer's attention.
    #[getter]
    fn experts<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        CONTRACT.many(py, "ExpertShard", self.0.experts().iter().map(ExpertShard::from))
    }

    /// Where nodes serve what this has on them, by node.
    #[getter]
    fn addresses(&self) -> BTreeMap<String, String> {
        let addresses = self.0.addresses().iter();
        addresses.map(|(node, address)| (node.to_string(), address.clone())).collect()
    }

    /// What each device is to hold, where the placement came with that.
    #[getter]
    fn budgets<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        CONTRACT.many(py, "Budget", self.0.budgets())
    }

    /// Bytes of feed-forward blocks and experts that the coordinator's processor has in memory at most, where the others
    /// stay on disk; None: all are in memory.
    #[getter]
    fn ffn_budget(&self) -> Option<u64> {
        self.0.ffn_budget()
    }

    /// Tokens for which a plan reserves keys and values: the context that `Model.load` gives sessions. None: it was
    /// made by hand, or came as an MLX instance, which does not say.
    #[getter]
    fn context_tokens(&self) -> Option<u64> {
        self.0.context_tokens()
    }

    /// Sessions for each of which a plan reserves keys and values: as many as `Model.load` lets generate at once, unless its
    /// options ask for fewer. None: as of `context_tokens`.
    #[getter]
    fn sessions(&self) -> Option<usize> {
        self.0.sessions()
    }

    /// What a plan counts that drafts, on the last stage's device: `Model.load` loads the checkpoint's head where it is that,
    /// and else asks for a `draft_model` that takes no more. None: nothing, or nobody planned it.
    #[getter]
    fn drafter<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.drafter().map(|drafter| CONTRACT.one(py, "Drafter", drafter)).transpose()
    }

    /// Tokens that the context is limited to; None: nothing is known that limits it.
    #[getter]
    fn context_limit(&self) -> Option<u64> {
        self.0.context_limit()
    }

    /// How keys are kept: as a plan was asked for. Where it was not, "f16" stands for two bytes an element, of what engines
    /// prefer.
    #[getter]
    fn kv(&self) -> &'static str {
        self.0.kv().keys.as_str()
    }

    /// How values are kept.
    #[getter]
    fn kv_values(&self) -> &'static str {
        self.0.kv().values.as_str()
    }

    /// The model's card; placements made by hand have none.
    #[getter]
    fn card<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.card().map(|card| json::card_data(py, card)).transpose()
    }

    /// Why it is as it is; placements that were not planned here have none.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.report().map(|report| report_of(py, report)).transpose()
    }

    /// Its name: the one that it came with, or one that follows from what it says.
    #[getter]
    fn instance_id(&self) -> String {
        self.0.instance_id()
    }

    /// The placement as JSON on one line, in camelCase, as Skulk 1.3 has it for its transports.
    fn to_json(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    /// What `to_json` writes, as dictionaries and lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::plain(py, &self.to_json(py))
    }

    /// The tagged shard of one rank, with the card, as Skulk 1.3 gives it to a runner.
    fn shard_metadata<'py>(&self, py: Python<'py>, rank: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let index = match rank.extract::<usize>() {
            Err(e) if e.is_instance_of::<PyOverflowError>(py) => None,
            index => Some(index?),
        };
        let shard = index.and_then(|rank| self.0.shard_metadata(rank)).ok_or_else(|| {
            let ranks = self.0.stages().len();
            PyIndexError::new_err(format!("expected a rank below {ranks}, found {rank}"))
        })?;
        json::plain(py, &shard.to_string())
    }

    /// Returns when every layer and expert of the card's model has its place exactly once and each
    /// device's part fits there by the placement's own budgets.
    fn check(&self, py: Python<'_>, card: &Bound<'_, PyAny>) -> PyResult<()> {
        let card = json::card(card)?;
        py.detach(|| self.0.check(&card)).map_err(raise)
    }

    /// `check`, and whether each part fits into what its node has now: what the budgets say, which count
    /// the context that was planned, and without budgets what the reference estimates for `context_tokens`.
    #[pyo3(signature = (card, cluster, context_tokens=None), text_signature = "($self, card, cluster, context_tokens=8192)")]
    fn check_on(
        &self,
        py: Python<'_>,
        card: &Bound<'_, PyAny>,
        cluster: &Bound<'_, PyAny>,
        context_tokens: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (card, cluster) = (json::card(card)?, cluster_of(cluster)?);
        let tokens = optional("context_tokens", context_tokens)?.unwrap_or(memory::CONTEXT_TOKENS);
        py.detach(|| self.0.check_on(&card, &cluster, tokens)).map_err(raise)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<skulk.Placement: {}>", self.0)
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("skulk._notebook")?.call_method1("placement", (slf,))
    }
}

/// Plans where a model runs: the fastest placement on a cluster that satisfies what is asked for, the
/// same for the same arguments. Nothing is loaded.
///
/// `card` is a `skulk.ModelCard`, or the path of a checkpoint, whose own tensors are counted then.
/// `cluster` is this machine unless given. `options` are those of `skulk.options.PlanOptions`.
#[pyfunction]
#[pyo3(signature = (card, cluster=None, **options), text_signature = "(card, cluster=None, *, sharding='pipeline', transport='direct', min_nodes=1, required_nodes=(), excluded_nodes=(), coordinator=None, context_tokens=8192, prompt_tokens=512, sessions=1, kv=None, kv_values=None, strictness='safe', from_disk=False, replicas=0, inventory=None, mtp=False, draft_model=None, fixed=None, rings=None, port=50000)")]
pub(crate) fn plan(
    py: Python<'_>,
    card: &Bound<'_, PyAny>,
    cluster: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Placement> {
    let request = given::options(options, PlanOptions::read)?;
    let cluster = cluster.map(cluster_of).transpose()?;
    let here = || cluster.unwrap_or_else(Cluster::local);
    let placement = if let Ok(path) = card.extract::<PathBuf>() {
        py.detach(|| request.place_checkpoint(path, &here()))
    } else {
        let card = json::card(card)?;
        py.detach(|| request.place(&card, &here()))
    };
    placement.map(Placement).map_err(raise)
}

/// What a placement costs on a cluster, whether or not it fits there: a token of each session, and a prompt. Nothing is
/// loaded.
///
/// `card` and `cluster` are as in `plan`. `placement` is what `plan` or `Placement` made, or gives engines their numbers of
/// layers. `options` are those of `skulk.options.PriceOptions`.
#[pyfunction]
#[pyo3(signature = (card, placement, cluster=None, **options), text_signature = "(card, placement, cluster=None, *, context_tokens=8192, prompt_tokens=512, sessions=1, kv=None, kv_values=None, inventory=None, mtp=False, draft_model=None)")]
pub(crate) fn price<'py>(
    py: Python<'py>,
    card: &Bound<'py, PyAny>,
    placement: &Bound<'py, PyAny>,
    cluster: Option<&Bound<'py, PyAny>>,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let asked = given::options(options, PriceOptions::read)?;
    let (placement, cluster) = (placement_of(placement)?, cluster.map(cluster_of).transpose()?);
    let here = || cluster.unwrap_or_else(Cluster::local);
    let priced = if let Ok(path) = card.extract::<PathBuf>() {
        py.detach(|| asked.price_checkpoint(path, &here(), &placement))
    } else {
        let card = json::card(card)?;
        py.detach(|| asked.price(&card, &here(), &placement))
    };
    CONTRACT.one(py, "Price", &Price::from(&priced.map_err(raise)?))
}

/// Bytes a second at which this machine reads a file from its drive.
#[pyfunction]
pub(crate) fn measure_disk(py: Python<'_>, path: PathBuf) -> PyResult<f64> {
    py.detach(|| Node::measure_disk(path)).map_err(raise)
}

/// How fast the link to a server is, as `skulk.LinkSpeed`.
#[pyfunction]
#[pyo3(signature = (address, cancel, options))]
pub(crate) fn measure_link<'py>(
    py: Python<'py>,
    address: &Bound<'_, PyString>,
    cancel: Option<&Bound<'_, CancelToken>>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = given::options(Some(options), LinkOptions::read)?;
    let address = text("address", address)?;
    let work = |cancel, _: Sender<()>| functions::link_speed(&address, &options.cancel(cancel));
    let measured = attempt(py, cancel, work, |()| Ok(()))?;
    CONTRACT.one(py, "LinkSpeed", &measured.map_err(raise)?)
}

/// A report as `skulk.PlanReport`.
pub(crate) fn report_of<'py>(py: Python<'py>, report: &skulk::PlanReport) -> PyResult<Bound<'py, PyAny>> {
    py.import("skulk._report")?.getattr("PlanReport")?.call_method1("_of", (report.to_json(),))
}

/// The cluster that an argument is.
pub(crate) fn cluster_of(value: &Bound<'_, PyAny>) -> PyResult<Cluster> {
    json::read("cluster", value, "Cluster")
}

/// What a checkpoint's tensors weigh.
#[pyfunction]
pub(crate) fn inventory_from_checkpoint(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let counted = py.detach(|| Inventory::from_checkpoint(&*skulk::open_checkpoint(path)?));
    CONTRACT.one(py, "Inventory", &counted.map_err(raise)?)
}

/// What the tensors weigh of what drafts for the model of a checkpoint.
#[pyfunction]
pub(crate) fn inventory_from_draft_model(
    py: Python<'_>,
    model: PathBuf,
    path: PathBuf,
) -> PyResult<Bound<'_, PyAny>> {
    let counted = py.detach(|| Inventory::from_draft_model(&*skulk::open_checkpoint(model)?, path));
    CONTRACT.one(py, "Inventory", &counted.map_err(raise)?)
}
