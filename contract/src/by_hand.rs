//! How does a host place a model by hand, or some of it? With texts that say what runs where.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use skulk::plan::backend::{ENGINES, is_engine};
use skulk::plan::{Inventory, PlacementBuilder, Target};
use skulk::{Cluster, Error, ErrorKind, ModelCard, Placement, Planner, Request};

use crate::given::{Given, Leaf, Spelling};
use crate::options::options;

/// What runs somewhere, as text with the place behind it.
macro_rules! placed {
    ($($(#[doc = $doc:literal])* $name:ident($of:ty): $expected:literal, $read:expr;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(pub $of, pub Target);

        impl Leaf for $name {
            fn expected() -> String {
                $expected.to_owned()
            }

            fn read(value: &Value) -> Option<Self> {
                let (what, target) = value.as_str()?.rsplit_once('=')?;
                Some(Self($read(what.trim())?, target.into()))
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                String::schema_name()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }
    )*};
}

placed! {
    /// Layers on an engine.
    PlacedLayers(Range<usize>): "`layers=engine`, as in `0..20=wgpu`", range;
    /// Blocks of layers, or experts of each of them, on an engine.
    PlacedExperts((Range<usize>, Option<Range<usize>>)):
        "`layers=engine` or `layers:experts=engine`, as in `4..20:0..64=cpu`", experts;
    /// Blocks and experts by a pattern over their tensors' names, on an engine.
    PlacedTensors(String): "`pattern=engine`, as in `ffn_.*_exps=CPU`", |pattern: &str| Some(pattern.to_owned());
}

/// `first..end`, or one number.
fn range(text: &str) -> Option<Range<usize>> {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    match text.split_once("..") {
        Some((start, end)) => Some(number(start)?..number(end)?),
        None => {
            let start = number(text)?;
            Some(start..start.checked_add(1)?)
        }
    }
}

fn experts(text: &str) -> Option<(Range<usize>, Option<Range<usize>>)> {
    match text.split_once(':') {
        Some((layers, experts)) => Some((range(layers)?, Some(range(experts)?))),
        None => Some((range(text)?, None)),
    }
}

/// Whether there are the engines of these places; hosts cannot make others.
fn are_named<'a>(field: &'static str, targets: impl IntoIterator<Item = &'a Target>) -> skulk::Result<()> {
    let is_named = |it: &&Target| is_engine(it.engine.as_str()) && !it.node.as_str().is_empty();
    let Some(target) = targets.into_iter().find(|target| !is_named(target)) else { return Ok(()) };
    let message = format!("expected an engine, or engine@node, found `{target}`");
    Err(Error::new(ErrorKind::PlacementInvalid, message).with("field", field).with_hint(ENGINES))
}

/// Stages of so many layers each, on engines by name.
///
/// # Errors
/// As [`Placement::by_counts`], and for engines that there are not.
pub fn by_counts(counts: Vec<(String, usize)>) -> skulk::Result<Placement> {
    if let Some((engine, _)) = counts.iter().find(|(engine, _)| !is_engine(engine)) {
        let message = format!("expected the name of an engine, found `{engine}`");
        let error = Error::new(ErrorKind::PlacementInvalid, message).with("field", "placement");
        return Err(error.with_hint(ENGINES));
    }
    Placement::by_counts(counts)
}

/// What a placement is made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlacementRules {
    /// Where layers are that are not named.
    pub engine: Option<Target>,
    /// Layers.
    pub layers: Vec<PlacedLayers>,
    /// Blocks and experts.
    pub experts: Vec<PlacedExperts>,
    /// The same by patterns.
    pub override_tensors: Vec<PlacedTensors>,
}

impl PlacementRules {
    /// The placement of a checkpoint's model, or of one with these parts.
    ///
    /// # Errors
    /// As [`PlacementBuilder::build`], and whatever is wrong with the checkpoint.
    pub fn build(self, path: Option<PathBuf>, inventory: Option<Inventory>) -> skulk::Result<Placement> {
        let builder = match path {
            Some(path) => PlacementBuilder::from_checkpoint(&*skulk::open_checkpoint(path)?)?,
            None => Placement::builder(&inventory.unwrap_or_default()),
        };
        self.rules(builder).build()
    }

    /// These rules for a model.
    pub(crate) fn rules(self, builder: PlacementBuilder) -> PlacementBuilder {
        let builder = self.engine.into_iter().fold(builder, PlacementBuilder::engine);
        let builder = self
            .layers
            .into_iter()
            .fold(builder, |builder, PlacedLayers(layers, target)| builder.layers(layers, target));
        let builder = self.experts.into_iter().fold(builder, |builder, rule| match rule {
            PlacedExperts((layers, Some(experts)), target) => builder.experts(layers, experts, target),
            PlacedExperts((layers, None), target) => builder.feed_forward(layers, target),
        });
        self.override_tensors.into_iter().fold(builder, |builder, PlacedTensors(pattern, target)| {
            builder.override_tensors(pattern, target)
        })
    }
}

impl Leaf for PlacementRules {
    fn expected() -> String {
        "rules of a placement by hand".to_owned()
    }

    /// Only languages spell them.
    fn read(_: &Value) -> Option<Self> {
        None
    }

    fn read_as(_: &str, value: &Value, spelling: Spelling) -> skulk::Result<Option<Self>> {
        let fields = value.as_object().cloned();
        fields.map(|fields| PlacementOptions::read(fields, spelling)).transpose()
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for PlacementRules {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        PlacementOptions::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        PlacementOptions::schema_id()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        PlacementOptions::json_schema(generator)
    }
}

/// What is asked of a plan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlanRequest {
    /// What the library is asked, but for what is fixed: that takes the model.
    pub request: Request,
    /// What is fixed by hand.
    pub fixed: Option<PlacementRules>,
}

impl PlanRequest {
    /// Places the model of a card.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub fn place(self, card: &ModelCard, cluster: &Cluster) -> skulk::Result<Placement> {
        let described = || Arc::new(Inventory::from_card(card));
        let inventory = || self.request.inventory.clone().unwrap_or_else(described);
        let builder = self.fixed.is_some().then(|| Placement::builder(&inventory()));
        Planner::plan(card, cluster, &self.with(builder))
    }

    /// Places the model of a checkpoint.
    ///
    /// # Errors
    /// As [`Planner::plan_checkpoint`].
    pub fn place_checkpoint(self, path: PathBuf, cluster: &Cluster) -> skulk::Result<Placement> {
        let builder = || PlacementBuilder::from_checkpoint(&*skulk::open_checkpoint(&path)?);
        let builder = self.fixed.as_ref().map(|_| builder()).transpose()?;
        Planner::plan_checkpoint(path, cluster, &self.with(builder))
    }

    fn with(self, builder: Option<PlacementBuilder>) -> Request {
        match (self.fixed, builder) {
            (Some(rules), Some(builder)) => self.request.fixed(rules.rules(builder)),
            _ => self.request,
        }
    }
}

options! {
    /// A placement by hand. An engine is named as `wgpu`, or with its node as `cpu@shed`. What two options place, they must
    /// place alike; feed-forward blocks and experts that none names stay with their layer's attention.
    PlacementOptions of (rules: PlacementRules) {
        /// The engine of layers that `layers` does not name.
        engine: String => {
            let target = (&*engine).into();
            are_named("engine", [&target])?;
            rules.engine = Some(target);
        },
        /// Layers as stages, as in `0..20=wgpu`.
        layers: Vec<PlacedLayers> => {
            are_named("layers", layers.iter().map(|rule| &rule.1))?;
            rules.layers = layers;
        },
        /// Feed-forward blocks of layers with all their experts, as in `4..20=cpu`, or some experts of each, as in
        /// `4..20:0..64=cpu@shed`. A dense block is expert 0.
        experts: Vec<PlacedExperts> => {
            are_named("experts", experts.iter().map(|rule| &rule.1))?;
            rules.experts = experts;
        },
        /// Blocks and experts by regular expressions over the checkpoint's names of tensors, as llama.cpp's option of this name
        /// takes them: `blk\.(1[0-9])\.ffn_.*_exps\.=CPU`. Each must match whole blocks or experts, and nothing of attention.
        override_tensors: Vec<PlacedTensors> => {
            are_named("override_tensors", override_tensors.iter().map(|rule| &rule.1))?;
            rules.override_tensors = override_tensors;
        },
    }
}
