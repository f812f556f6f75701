//! Which parts of a vindex does a role take? LARQL's roles, each with what it cannot do without.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::vindex::VindexPart::{
    self, Attention, DownFeatures, DownMeta, Embeddings, ExpertLayers, Ffn, Gate, Head, Knn, Labels,
    Manifest, Norms, PerLayerEmbeddings, Readme, Router, Tokenizer,
};

/// What a slice is for. The guide to the format has a table of the parts that each brings, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum SlicePreset {
    /// Everything that the folder has.
    #[default]
    Full,
    /// Embeddings, attention and the head: all but feed-forward blocks, which a server computes.
    Client,
    /// Attention, where tokens are embedded elsewhere too.
    Attn,
    /// Embeddings and the head: tokens to states, and states to logits.
    Embed,
    /// Feed-forward blocks, experts included.
    Server,
    /// What knowledge is looked up in: no weights that only generation takes.
    Browse,
    /// Who chooses experts.
    Router,
    /// Experts.
    ExpertServer,
}

/// The parts that a role takes.
struct Role {
    name: &'static str,
    /// LARQL's other names for it.
    aliases: &'static [&'static str],
    /// Without these it cannot work, if the model has them.
    needs: &'static [VindexPart],
    /// Likewise, where `gate_vectors.bin` is the gate projection, of which there is no quantised copy.
    needs_of_floats: &'static [VindexPart],
    /// Brought where they are there.
    takes: &'static [VindexPart],
}

impl SlicePreset {
    /// Every preset.
    pub const ALL: [Self; 8] = [
        Self::Full,
        Self::Client,
        Self::Attn,
        Self::Embed,
        Self::Server,
        Self::Browse,
        Self::Router,
        Self::ExpertServer,
    ];

    /// The stable name: `full`, `client`, `attn`, `embed`, `server`, `browse`, `router` or `expert-server`.
    pub fn as_str(self) -> &'static str {
        self.role().name
    }

    /// Parts that its slices have, of folders that have them. `are_floats`: weights are not quantised.
    pub fn parts(self, are_floats: bool) -> impl Iterator<Item = VindexPart> {
        let role = self.role();
        VindexPart::ALL.iter().copied().filter(move |part| {
            *part == VindexPart::Index || role.takes.contains(part) || self.needs(*part, are_floats)
        })
    }

    /// Whether it cannot do without the part, where the model has it.
    pub(in crate::vindex) fn needs(self, part: VindexPart, are_floats: bool) -> bool {
        let role = self.role();
        role.needs.contains(&part) || are_floats && role.needs_of_floats.contains(&part)
    }

    /// Whether only feed-forward weights count: gate rows of experts that are not asked for stay behind.
    pub(super) fn serves_experts(self) -> bool {
        matches!(self, Self::Server | Self::ExpertServer)
    }

    fn role(self) -> Role {
        match self {
            Self::Full => Role {
                name: "full",
                aliases: &["all"],
                needs: &[],
                needs_of_floats: &[],
                takes: VindexPart::ALL,
            },
            Self::Client => Role {
                name: "client",
                aliases: &[],
                needs: &[Embeddings, Norms, Attention, Head, PerLayerEmbeddings, Router, Tokenizer, Manifest],
                needs_of_floats: &[],
                takes: &[Labels],
            },
            Self::Attn => Role {
                name: "attn",
                aliases: &["attention"],
                needs: &[Norms, Attention, PerLayerEmbeddings, Router, Manifest],
                needs_of_floats: &[],
                takes: &[Labels],
            },
            Self::Embed => Role {
                name: "embed",
                aliases: &["embed-server"],
                needs: &[Embeddings, Tokenizer],
                needs_of_floats: &[],
                takes: &[Head, Labels, Manifest],
            },
            Self::Server => Role {
                name: "server",
                aliases: &["ffn", "ffn-service"],
                needs: &[Norms, Ffn, ExpertLayers, Router, Manifest],
                needs_of_floats: &[Gate],
                takes: &[Embeddings, Gate, DownMeta, DownFeatures, Tokenizer, Labels],
            },
            Self::Browse => Role {
                name: "browse",
                aliases: &[],
                needs: &[Embeddings, Gate, DownMeta, Tokenizer],
                needs_of_floats: &[],
                takes: &[Labels, Knn, Readme],
            },
            Self::Router => Role {
                name: "router",
                aliases: &[],
                needs: &[Router, Tokenizer],
                needs_of_floats: &[],
                takes: &[Norms, Manifest, Labels, Readme],
            },
            Self::ExpertServer => Role {
                name: "expert-server",
                aliases: &["expert_server", "moe-server"],
                needs: &[Norms, Ffn, ExpertLayers, Manifest],
                needs_of_floats: &[Gate],
                takes: &[Embeddings, DownFeatures, Tokenizer],
            },
        }
    }
}

impl fmt::Display for SlicePreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SlicePreset {
    type Err = Error;

    /// Reads a name, or one of LARQL's other names for it.
    fn from_str(name: &str) -> Result<Self, Error> {
        let wanted = name.trim().to_ascii_lowercase();
        let is_called = |role: Role| role.name == wanted || role.aliases.contains(&wanted.as_str());
        Self::ALL.into_iter().find(|preset| is_called(preset.role())).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            Error::new(ErrorKind::InvalidArgument, format!("expected a preset ({names}), found `{name:.80}`"))
                .with("field", "preset")
                .with_hint("or choose parts one by one")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for preset in SlicePreset::ALL {
            assert_eq!(preset.as_str().parse::<SlicePreset>().unwrap(), preset);
            assert!(preset.parts(true).any(|part| part == VindexPart::Index));
        }
        for (alias, name) in [
            ("all", "full"),
            ("Attention", "attn"),
            ("embed-server", "embed"),
            ("ffn", "server"),
            ("ffn-service", "server"),
            ("expert_server", "expert-server"),
            (" moe-server ", "expert-server"),
        ] {
            assert_eq!(alias.parse::<SlicePreset>().unwrap().as_str(), name);
        }
        let error = "both".parse::<SlicePreset>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("expert-server"), "{error}");
    }

    #[test]
    fn every_part_is_in_a_slice_of_its_own() {
        for part in VindexPart::ALL {
            assert!(SlicePreset::Full.parts(false).any(|p| p == *part));
            let others = SlicePreset::ALL.into_iter().filter(|preset| *preset != SlicePreset::Full);
            assert!(others.into_iter().any(|preset| preset.parts(true).any(|p| p == *part)), "{part:?}");
        }
    }
}
