//! Which plain data is there? All of it, by the names that it has in every language.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use skulk::{browse, card, extract, plan, vindex};
use skulk_contract::{self as contract, options};

use crate::types::{Class, Definitions};

/// Where a declaration belongs: what the package itself has, and what is in a room of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Package,
    Planning,
    Vindex,
}

/// Who makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The library alone.
    Library,
    /// Hosts, too. It never changes once it is made.
    Hosts,
    /// Hosts, too, and they change it.
    HostsInSteps,
    /// Hosts alone, who leave out what they do not care about.
    Options,
}

struct Table {
    generator: SchemaGenerator,
    entries: Vec<(&'static str, String, Room, Maker)>,
}

impl Table {
    fn add<T: JsonSchema>(&mut self, room: Room, maker: Maker, name: &'static str) {
        let schema = self.generator.subschema_for::<T>().to_value();
        let definition = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        self.entries.push((name, definition.unwrap().to_owned(), room, maker));
    }
}

/// Every class, each behind those that it mentions.
pub(crate) fn classes() -> Vec<Class> {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut table = Table { generator, entries: vec![] };
    macro_rules! add {
        ($room:ident, $maker:ident: $($name:ident = $type:ty,)*) => {
            $(table.add::<$type>(Room::$room, Maker::$maker, stringify!($name));)*
        };
    }
    add! { Package, Hosts:
        StorageSize = card::StorageSize,
        ComponentInfo = card::ComponentInfo,
        VisionCardConfig = card::VisionCardConfig,
        ReasoningCardConfig = card::ReasoningCardConfig,
        ModalitiesCardConfig = card::ModalitiesCardConfig,
        ToolingCardConfig = card::ToolingCardConfig,
        RuntimeCardConfig = card::RuntimeCardConfig,
        PlacementCardConfig = card::PlacementCardConfig,
        LatentFacts = card::LatentFacts,
        IndexFacts = card::IndexFacts,
        AttentionFacts = card::AttentionFacts,
        WindowFacts = card::WindowFacts,
        RecurrentFacts = card::RecurrentFacts,
        ExpertFacts = card::ExpertFacts,
        ModelFacts = card::ModelFacts,
        ModelCard = skulk::ModelCard,
    }
    add! { Package, Library:
        Reasoning = card::ReasoningRequest,
        Profile = skulk::Profile,
    }
    add! { Package, HostsInSteps:
        NodeMemory = plan::NodeMemory,
        Accelerator = plan::Accelerator,
        NetworkInterface = plan::NetworkInterface,
        Node = plan::Node,
        LinkSpeed = plan::LinkSpeed,
        LinkKind = plan::LinkKind,
        Link = plan::Link,
        Cluster = plan::Cluster,
        LayerBytes = plan::LayerBytes,
        Inventory = plan::Inventory,
    }
    add! { Package, Library:
        Arch = contract::Arch<'static>,
        Device = skulk::DeviceInfo,
        Stage = skulk::StageInfo,
        FfnMemory = skulk::FfnMemory,
        KvMemory = skulk::KvMemory,
        Divergence = skulk::Divergence,
        SpeculationWay = skulk::SpeculationWay,
        SpeculationReport = contract::SpeculationReport<'static>,
        TokenLogprob = skulk::TokenLogprob,
        Token = skulk::Token,
        Usage = skulk::Usage,
        Timings = skulk::Timings,
        Finish = skulk::Finish,
        Event = skulk::Event,
        Output = skulk::Output,
        ChatUsage = skulk::ChatUsage,
        ChatFinish = skulk::ChatFinish,
        ChatCall = skulk::ChatCall,
        MalformedCall = skulk::chat::MalformedCall,
        ChatEvent = skulk::ChatEvent,
        ChatAnswer = skulk::ChatAnswer,
        ChatPrompt = skulk::chat::ChatPrompt,
        ToolResult = skulk::ToolResult,
        CardFault = skulk::Fault,
        CfgPart = contract::CfgPart,
        PlacedStage = contract::PlacedStage<'static>,
        ExpertShard = contract::ExpertShard<'static>,
        Bytes = plan::Bytes,
        Drafter = plan::Drafter,
        Budget = plan::Budget,
        ModelMemory = skulk::ModelMemory,
        Estimate = plan::Estimate,
        PromptEstimate = plan::PromptEstimate,
        Price = contract::Price<'static>,
    }
    add! { Planning, Library:
        Usable = plan::memory::Usable,
        GgufFacts = card::GgufFacts,
        ConfigFacts = contract::ConfigFacts<'static>,
    }
    add! { Vindex, Library:
        TensorInfo = contract::TensorInfo<'static>,
        PartFile = vindex::PartFile,
        PartInfo = vindex::PartInfo,
        VindexBands = contract::VindexBands,
        VindexProgress = contract::VindexProgress<'static>,
        ExtractFile = extract::ExtractFile,
        ExtractReport = extract::ExtractReport,
        SlicedFile = vindex::SlicedFile,
        SliceReport = contract::SliceReport<'static>,
        VerifiedFile = vindex::VerifiedFile,
        VerifyProblem = contract::VerifyProblem<'static>,
        VerifyReport = contract::VerifyReport<'static>,
        FeatureHit = browse::FeatureHit,
        WalkHit = browse::WalkHit,
        Edge = browse::Edge,
        Description = browse::Description,
        FeatureToken = browse::FeatureToken,
        Label = browse::Label,
        Feature = browse::Feature,
        Selected = browse::Selected,
        Selection = browse::Selection,
        Relation = browse::Relation,
        Probe = browse::Probe,
        Relations = browse::Relations,
    }
    add! { Package, Library:
        FailureDetail = contract::FailureDetail<'static>,
        Failure = contract::Failure<'static>,
    }
    add! { Package, Options:
        LoadOptions = options::LoadOptions,
        ServeOptions = options::ServeOptions,
        LinkOptions = options::LinkOptions,
        GenerateOptions = options::GenerateOptions,
        RenderOptions = contract::chat::RenderOptions,
        ChatOptions = contract::chat::ChatOptions,
        ToolOptions = contract::chat::ToolOptions,
        EmbeddingOptions = options::EmbeddingOptions,
        EmbedOptions = options::EmbedOptions,
        PlanOptions = options::PlanOptions,
        PriceOptions = contract::price::PriceOptions,
        PlacementOptions = contract::by_hand::PlacementOptions,
        RingsOptions = options::RingsOptions,
        ProfileOptions = options::ProfileOptions,
        ExtractOptions = options::ExtractOptions,
        SliceOptions = options::SliceOptions,
        VerifyOptions = options::VerifyOptions,
        NearestOptions = options::NearestOptions,
        WalkOptions = options::WalkOptions,
        DescribeOptions = options::DescribeOptions,
        SelectOptions = options::SelectOptions,
        RelationsOptions = options::RelationsOptions,
    }
    let definitions = Definitions::new(
        table.generator.take_definitions(true),
        table.entries.iter().map(|(name, definition, ..)| (definition.clone(), *name)).collect(),
    );
    table
        .entries
        .iter()
        .flat_map(|(name, definition, room, maker)| definitions.classes(name, definition, *room, *maker))
        .collect()
}
