//! What is a placement? Which node runs which layers and experts, every one of them exactly once.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::backend::can_name_an_engine;
use super::cluster::NodeId;
use super::coverage;
use super::instance::{Ids, Instance};
use super::report::PlanReport;
use super::stage::{Budget, Drafter, ExpertShard, Stage, invalid};
use crate::card::ModelCard;
use crate::error::{Error, Result};
use crate::ids::EngineId;
use crate::kv_type::KvTypes;

/// Where each layer of a model runs: stages in the order a token passes them, and the feed-forward blocks
/// and experts that are elsewhere than their layer's attention.
///
/// ```
/// use skulk::{EngineId, Placement};
/// let placement = Placement::even(18, 4, &EngineId::new("cpu")).unwrap();
/// assert_eq!(placement.stages().len(), 4);
/// assert_eq!(placement.stages()[0].layers, 0..5);
/// assert_eq!(placement.stages()[3].layers, 14..18);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub(super) n_layers: usize,
    pub(super) stages: Vec<Stage>,
    pub(super) experts: Vec<ExpertShard>,
    pub(super) addresses: BTreeMap<NodeId, String>,
    pub(super) budgets: Vec<Budget>,
    pub(super) ffn_budget: Option<u64>,
    /// Bytes of the weights that a plan counted, each once; `None`: nobody planned it.
    pub(super) weights: Option<u64>,
    pub(super) context_tokens: Option<u64>,
    pub(super) sessions: Option<usize>,
    pub(super) kv: Option<KvTypes>,
    pub(super) context_limit: Option<u64>,
    pub(super) card: Option<Arc<ModelCard>>,
    pub(super) instance: Instance,
    pub(super) report: Option<Arc<PlanReport>>,
    /// Given names; `None`: they follow from the rest.
    pub(super) ids: Option<Ids>,
}

impl Placement {
    /// A placement of these stages over a model of `n_layers` layers.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`](crate::ErrorKind::PlacementInvalid) unless the stages cover every layer exactly once, in order. Stages that
    /// have parts of their layers must have all parts together, and be in order of rank.
    pub fn new(stages: Vec<Stage>, n_layers: usize) -> Result<Self> {
        coverage::check_stages(&stages, n_layers)?;
        Ok(Self {
            n_layers,
            stages,
            experts: Vec::new(),
            addresses: BTreeMap::new(),
            budgets: Vec::new(),
            ffn_budget: None,
            weights: None,
            context_tokens: None,
            sessions: None,
            kv: None,
            context_limit: None,
            card: None,
            instance: Instance::Direct { coordinator: NodeId::new(NodeId::LOCAL) },
            report: None,
            ids: None,
        })
    }

    /// `stages` ranges of as equal length as possible, all on one engine.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`](crate::ErrorKind::PlacementInvalid) for zero stages, or more stages than layers, and for
    /// what is no name of an engine, as a backend's tag.
    pub fn even(n_layers: usize, stages: usize, engine: &EngineId) -> Result<Self> {
        is_name("engine", engine.as_str())?;
        if stages == 0 || stages > n_layers {
            let message = format!("expected 1 to {n_layers} stages, one layer each at least, found {stages}");
            return Err(invalid(message, "ask for no more stages than layers").with("field", "stages"));
        }
        let (size, larger) = (n_layers / stages, n_layers % stages);
        let mut start = 0;
        let stages = (0..stages)
            .map(|stage| {
                let layers = start..start + size + usize::from(stage < larger);
                start = layers.end;
                Stage::new(engine, layers)
            })
            .collect();
        Self::new(stages, n_layers)
    }

    /// Stages of so many layers each, one behind the other, on engines by name. The model says later
    /// whether that is all of its layers.
    ///
    /// ```
    /// let placement = skulk::Placement::by_counts([("candle-cuda", 20), ("cpu", 12)]).unwrap();
    /// assert_eq!(placement, "candle-cuda=20,cpu=12".parse().unwrap());
    /// assert_eq!(placement.stages()[1].layers, 20..32);
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`](crate::ErrorKind::PlacementInvalid) for a stage without layers, or no stages, and for
    /// what is no name of an engine, as a backend's tag.
    pub fn by_counts<E: AsRef<str>>(counts: impl IntoIterator<Item = (E, usize)>) -> Result<Self> {
        let mut end = 0usize;
        let stages = counts.into_iter().map(|(engine, layers)| {
            let engine = engine.as_ref();
            is_name("placement", engine)?;
            let start = end;
            // Too many for any model: the model will say so.
            end = end.saturating_add(layers);
            Ok(Stage::new(&EngineId::new(engine), start..end))
        });
        let stages = stages.collect::<Result<_>>()?;
        Self::new(stages, end)
    }

    /// Whether it is one of a model of so many layers.
    pub(crate) fn covers(&self, n_layers: usize) -> Result<()> {
        coverage::check_stages(&self.stages, n_layers)?;
        coverage::check_experts(&self.experts, n_layers)
    }

    /// The same, with these feed-forward blocks and experts elsewhere than their layer's attention.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`](crate::ErrorKind::PlacementInvalid) unless of each layer that is named every expert
    /// has one owner.
    pub fn with_experts(mut self, experts: Vec<ExpertShard>) -> Result<Self> {
        coverage::check_experts(&experts, self.n_layers)?;
        self.experts = experts;
        Ok(self)
    }

    /// The same, with a node that serves its experts there, as at `http://192.168.7.4:8080`.
    #[must_use]
    pub fn with_address(mut self, node: impl Into<NodeId>, address: impl Into<String>) -> Self {
        self.addresses.insert(node.into(), address.into());
        self
    }

    pub(crate) fn add_experts(&mut self, experts: impl IntoIterator<Item = ExpertShard>) {
        self.experts.extend(experts);
    }

    pub(crate) fn stages_mut(&mut self) -> &mut [Stage] {
        &mut self.stages
    }

    /// Layers of the model.
    pub fn n_layers(&self) -> usize {
        self.n_layers
    }

    /// The stages, by rank: of a pipeline, in the order a token passes them.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Feed-forward blocks and experts that are elsewhere than their layer's attention.
    pub fn experts(&self) -> &[ExpertShard] {
        &self.experts
    }

    /// Where nodes serve their experts, as far as that is known.
    pub fn addresses(&self) -> &BTreeMap<NodeId, String> {
        &self.addresses
    }

    /// What each device is to hold, where the placement came with that.
    pub fn budgets(&self) -> &[Budget] {
        &self.budgets
    }

    /// Bytes of feed-forward blocks and experts that the coordinator's processor has in memory at most, where the others
    /// stay on disk; `None`: all are in memory. [`Model::load`](crate::Model::load) keeps it.
    pub fn ffn_budget(&self) -> Option<u64> {
        self.ffn_budget
    }

    /// Tokens for which a plan reserves keys and values: the context that [`Model::load`](crate::Model::load) gives
    /// sessions, as far as the model and the [limit](Self::context_limit) allow, unless its options say otherwise.
    /// `None`: nobody planned it, or it was read from an MLX instance, which does not say.
    pub fn context_tokens(&self) -> Option<u64> {
        self.context_tokens
    }

    /// Sessions for each of which a plan reserves keys and values: as many as [`Model::load`](crate::Model::load) lets
    /// generate at once, unless its options ask for fewer. `None`: nobody planned it, or it was read from an MLX instance.
    pub fn sessions(&self) -> Option<usize> {
        self.sessions
    }

    /// What a plan counts that drafts, on the last stage's device: [`Model::load`](crate::Model::load) loads the checkpoint's
    /// head where it is that, and else asks for a [`draft_model`](crate::LoadOptions::draft_model) that takes no more.
    /// `None`: nothing, or nobody planned it.
    pub fn drafter(&self) -> Option<&Drafter> {
        self.budgets.iter().find_map(|budget| budget.drafter.as_ref())
    }

    /// How keys and values are kept unless options of loading say otherwise: as a plan was asked, and a loaded model keeps them.
    /// Where nobody asked, half precision, as long as they are: engines then keep them in what they
    /// [prefer](crate::LoadOptions::kv) of these bytes.
    pub fn kv(&self) -> KvTypes {
        self.kv.unwrap_or_default()
    }

    /// The same where somebody asked.
    pub(crate) fn kept(&self) -> Option<KvTypes> {
        self.kv
    }

    /// Says how they are kept.
    pub(crate) fn keep(&mut self, kv: KvTypes) {
        self.kv = Some(kv);
    }

    /// Tokens that the context is limited to; `None`: nothing is known that limits it.
    pub fn context_limit(&self) -> Option<u64> {
        self.context_limit
    }

    /// The model's card; placements made by hand have none.
    pub fn card(&self) -> Option<&ModelCard> {
        self.card.as_deref()
    }

    /// How the nodes reach each other.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Why it is as it is; placements that were not planned here have none.
    pub fn report(&self) -> Option<&PlanReport> {
        self.report.as_deref()
    }
}

/// Whether an engine can have this name.
fn is_name(field: &str, engine: &str) -> Result<()> {
    if can_name_an_engine(engine) {
        return Ok(());
    }
    let message = format!("expected the name of an engine, found `{engine}`");
    Err(invalid(message, "name an engine as in cpu, wgpu or candle-cuda:1").with("field", field))
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, stage) in self.stages.iter().enumerate() {
            if i > 0 {
                f.write_str(" → ")?;
            }
            write!(f, "layers {}..{} on ", stage.layers.start, stage.layers.end)?;
            match (stage.node.as_str(), stage.engine(), &stage.backend) {
                (NodeId::LOCAL, Some(engine), _) => write!(f, "{engine}")?,
                (node, _, Some(backend)) => write!(f, "{node} ({backend})")?,
                (node, ..) => f.write_str(node)?,
            }
        }
        Ok(())
    }
}

/// [`Placement::by_counts`] from text: `engine=layers`, separated by commas, as in `candle-cuda=20,cpu=12`.
impl FromStr for Placement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let stage = |part: &str| {
            let (engine, layers) = part.split_once('=')?;
            Some((engine.trim().to_owned(), layers.trim().parse().ok()?))
        };
        let counts = text.split(',').map(|part| {
            stage(part).ok_or_else(|| {
                let message = format!("expected engine=layers, as in cpu=3, found `{part}`");
                invalid(message, "separate stages by commas, as in candle-cuda=20,cpu=12")
                    .with("field", "placement")
            })
        });
        Self::by_counts(counts.collect::<Result<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn even_covers_every_layer_once() {
        let engine = EngineId::new("e");
        for n_layers in 1..40 {
            for stages in 1..=n_layers {
                let placement = Placement::even(n_layers, stages, &engine).unwrap();
                let sizes: Vec<_> = placement.stages().iter().map(|s| s.layers.len()).collect();
                assert_eq!(sizes.iter().sum::<usize>(), n_layers);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
            assert!(Placement::even(n_layers, n_layers + 1, &engine).is_err());
            assert!(Placement::even(n_layers, 0, &engine).is_err());
        }
    }

    #[test]
    fn counts_follow_each_other() {
        let placement = Placement::by_counts([("a", 3), ("b:1", 1), ("a", 2)]).unwrap();
        assert_eq!(placement.to_string(), "layers 0..3 on a → layers 3..4 on b:1 → layers 4..6 on a");
        assert_eq!(placement, " a=3, b:1 = 1,a=2".parse().unwrap());
        let none: [(&str, usize); 0] = [];
        assert!(Placement::by_counts(none).is_err());
        assert!(Placement::by_counts([("a", 1), ("b", 0)]).is_err());
        assert!(Placement::by_counts([("a", usize::MAX), ("b", 1)]).is_err());
        for name in ["", "skulk-cpu", "cpu@a"] {
            let error = Placement::by_counts([(name, 2)]).unwrap_err();
            assert!(error.message().contains(&format!("found `{name}`")), "{error}");
        }
        for text in ["", "a", "a=", "a=x", "a=-1", "a=1,", "a=1;b=2", "a=0", "a=99999999999999999999"] {
            let error = text.parse::<Placement>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PlacementInvalid, "{text}");
            assert!(error.message().contains("expected") && error.message().contains("found"), "{error}");
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "placements of one stage")]
    fn gaps_and_overlaps_are_errors() {
        let stage = |layers| Stage::new(&EngineId::new("e"), layers);
        for ranges in
            [vec![0..2, 3..4], vec![0..2, 1..4], vec![1..4], vec![0..3], vec![0..5], vec![0..0, 0..4], vec![]]
        {
            let error = Placement::new(ranges.into_iter().map(stage).collect(), 4).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PlacementInvalid);
        }
    }
}
