//! Are key-values of GGUF files' families told that are missing, contradict each other or cannot be, and what files do not
//! say taken from where the documentation says?

use skulk::arch::{ArchSpec, QkNorm, Window};
use skulk::{Error, ErrorKind, open_checkpoint};

use crate::fixtures;

/// A file of a family, in memory.
struct File(Vec<u8>);

impl File {
    fn read(family: &str) -> Self {
        let path = fixtures::root().join(format!("tests/fixtures/gguf/families/{family}.gguf"));
        Self(std::fs::read(path).unwrap())
    }

    /// Where a key ends that is written as its length and its letters: there begins its value's type.
    fn behind(&self, key: &str) -> usize {
        let written = [&(key.len() as u64).to_le_bytes(), key.as_bytes()].concat();
        let at = self.0.windows(written.len()).position(|found| found == written);
        at.unwrap_or_else(|| panic!("no {key}")) + written.len()
    }

    /// The same without a key: it is called otherwise.
    fn without(mut self, key: &str) -> Self {
        let end = self.behind(key);
        self.0[end - 1] = b'~';
        self
    }

    /// The same with another value of as many bytes; of an array, `at` elements of that size before.
    fn with(mut self, key: &str, at: usize, value: &[u8]) -> Self {
        const ARRAY: u32 = 9;
        let end = self.behind(key);
        let kind = u32::from_le_bytes(self.0[end..end + 4].try_into().unwrap());
        let from = end + 4 + if kind == ARRAY { 12 + at * value.len() } else { 0 };
        self.0[from..from + value.len()].copy_from_slice(value);
        self
    }

    fn described(&self) -> Result<ArchSpec, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changed.gguf");
        std::fs::write(&path, &self.0).unwrap();
        ArchSpec::from_checkpoint(&*open_checkpoint(&path)?)
    }
}

/// An error that names the file, the key and what to do.
fn refused(family: &str, file: File, kind: ErrorKind, named: &str) {
    let error = file.described().err().unwrap_or_else(|| panic!("{family} {named} was accepted"));
    let context: String = error.context().iter().map(|(key, value)| format!(" {key}: {value}")).collect();
    assert_eq!(error.kind(), kind, "{family} {named}: {error}");
    assert!(format!("{error}{context}").contains(named), "{family} {named}: {error}");
    assert!(context.contains("changed.gguf") && error.hint().is_some(), "{family} {named}: {error}");
}

/// Keys that nothing stands for.
#[test]
fn missing_keys_are_told() {
    let all: [(&str, &str, &[&str]); 6] = [
        (
            "gemma4_e",
            "gemma4",
            &[
                "attention.key_length_swa",
                "attention.sliding_window",
                "attention.sliding_window_pattern",
                "embedding_length_per_layer_input",
                "rope.freq_base",
            ],
        ),
        ("gemma4_a4b", "gemma4", &["expert_used_count", "expert_feed_forward_length"]),
        (
            "gemma3n",
            "gemma3n",
            &[
                "altup.num_inputs",
                "altup.active_idx",
                "attention.sliding_window",
                "attention.shared_kv_layers",
                "embedding_length_per_layer_input",
            ],
        ),
        (
            "llama4",
            "llama4",
            &[
                "expert_count",
                "expert_used_count",
                "expert_feed_forward_length",
                "interleave_moe_layer_step",
                "rope.freq_base",
            ],
        ),
        (
            "kimi_linear",
            "kimi-linear",
            &["kda.head_dim", "ssm.conv_kernel", "attention.kv_lora_rank", "rope.dimension_count"],
        ),
        (
            "step3p5",
            "step35",
            &[
                "attention.head_count",
                "attention.sliding_window",
                "attention.sliding_window_pattern",
                "expert_count",
                "rope.freq_base",
            ],
        ),
    ];
    for (family, arch, keys) in all {
        File::read(family).described().unwrap();
        for key in keys {
            let key = format!("{arch}.{key}");
            refused(family, File::read(family).without(&key), ErrorKind::ConfigInvalid, &key);
        }
    }
    for (family, arch) in [("deepseek_v32", "deepseek32"), ("glm_moe_dsa", "glm-dsa")] {
        for key in ["head_count", "key_length", "top_k"] {
            let key = format!("{arch}.attention.indexer.{key}");
            refused(family, File::read(family).without(&key), ErrorKind::ConfigInvalid, &key);
        }
    }
}

/// A file, a key, which value of an array, the value's bytes, and how it is refused.
type Case<'a> = (&'a str, &'a str, usize, &'a [u8], ErrorKind, &'a str);

/// Values that cannot be, that contradict others, or that no version knows.
#[test]
fn impossible_values_are_told() {
    use ErrorKind::{ArchUnsupported, ConfigInvalid};
    let n = |value: u32| value.to_le_bytes();
    let number = |value: f32| value.to_le_bytes();
    let cases: [Case<'_>; 22] = [
        // Arrays of each layer's values have as many as there are layers.
        ("gemma4_e", "gemma4.block_count", 0, &n(6), ConfigInvalid, "gemma4."),
        ("gemma4_e", "gemma4.block_count", 0, &n(u32::MAX), ConfigInvalid, "gemma4.block_count"),
        ("gemma4_e", "gemma4.attention.value_length_swa", 0, &n(8), ConfigInvalid, "value_length_swa"),
        ("gemma4_e", "gemma4.attention.shared_kv_layers", 0, &n(7), ConfigInvalid, "shared_kv_layers"),
        ("gemma4_e", "gemma4.attention.shared_kv_layers", 0, &n(u32::MAX), ConfigInvalid, "shared_kv_layers"),
        ("gemma4_e", "gemma4.attention.sliding_window", 0, &n(0), ConfigInvalid, "sliding window"),
        ("gemma4_e", "gemma4.rope.dimension_count", 0, &n(62), ConfigInvalid, "rope factors"),
        ("gemma4_e", "gemma4.embedding_length_per_layer_input", 0, &n(15), ConfigInvalid, "inputs to layers"),
        ("gemma4_a4b", "gemma4.expert_used_count", 0, &n(9), ConfigInvalid, "experts for each row"),
        ("gemma3n", "gemma3n.altup.num_inputs", 0, &n(1), ConfigInvalid, "residual streams"),
        ("gemma3n", "gemma3n.altup.active_idx", 0, &n(4), ConfigInvalid, "active residual stream"),
        ("gemma3n", "gemma3n.activation_sparsity_scale", 1, &number(f32::NAN), ConfigInvalid, "sparsity"),
        (
            "gemma3n",
            "gemma3n.activation_sparsity_scale",
            5,
            &number(f32::INFINITY),
            ConfigInvalid,
            "sparsity",
        ),
        ("gemma3n", "gemma3n.attention.shared_kv_layers", 0, &n(5), ConfigInvalid, "shared_kv_layers"),
        ("llama4", "llama4.expert_count", 0, &n(0), ConfigInvalid, "experts"),
        ("llama4", "llama4.rope.dimension_count", 0, &n(16), ConfigInvalid, "rope factors"),
        ("kimi_linear", "kimi-linear.kda.head_dim", 0, &n(0), ConfigInvalid, "key dimension"),
        ("kimi_linear", "kimi-linear.ssm.conv_kernel", 0, &n(9), ConfigInvalid, "convolution"),
        ("step3p5", "step35.swiglu_clamp_exp", 3, &number(-1.0), ConfigInvalid, "limit of activations"),
        ("step3p5", "step35.expert_gating_func", 0, &n(1), ArchUnsupported, "expert_gating_func"),
        ("glm_moe_dsa", "glm-dsa.attention.indexer.types", 0, &[0], ConfigInvalid, "indexer.types"),
        ("deepseek_v32", "deepseek32.attention.indexer.key_length", 0, &n(4), ConfigInvalid, "indexer"),
    ];
    for (family, key, at, value, kind, named) in cases {
        refused(family, File::read(family).with(key, at, value), kind, named);
    }
}

/// llama.cpp's chunks and growth of queries, and Maverick's heads without norms.
#[test]
fn llama_4_has_what_files_do_not_name() {
    let spec = File::read("llama4").described().unwrap();
    let attentions: Vec<_> = spec.layers.iter().map(|layer| layer.attention().unwrap()).collect();
    for (at, attention) in attentions.iter().enumerate() {
        let rotates = at != 3;
        assert_eq!(attention.window, rotates.then_some(Window::Chunk(8192)), "{at}");
        assert_eq!(attention.rope, rotates.then_some(0), "{at}");
        assert_eq!(attention.qk_norm, rotates.then_some(QkNorm::Plain), "{at}");
        let growth = attention.query_growth.map(|growth| (growth.rate, growth.every, growth.ahead));
        assert_eq!(growth, (!rotates).then_some((0.1, 8192.0, 1)), "{at}");
    }
    let many = File::read("llama4").with("llama4.expert_count", 0, &128u32.to_le_bytes());
    let spec = many.described().unwrap();
    assert!(spec.layers.iter().all(|layer| layer.attention().unwrap().qk_norm.is_none()));
}

/// Gemma 4's pairs that do not turn are told by a tensor, and mean what configurations say.
#[test]
fn gemma_4_turns_some_pairs() {
    let of_file = File::read("gemma4_e").described().unwrap();
    let config = fixtures::root().join("tests/fixtures/models/gemma4");
    let of_folder = ArchSpec::from_checkpoint(&*open_checkpoint(config).unwrap()).unwrap();
    let scaling = |spec: &ArchSpec| format!("{:?}", spec.ropes[0].scaling);
    assert_eq!(scaling(&of_file), "Proportional { rotated: 8, factor: 1.0 }");
    assert_eq!(scaling(&of_folder), "Proportional { rotated: 16, factor: 1.0 }");
    let sources: Vec<_> = of_file.layers.iter().map(|layer| layer.attention().unwrap().kv_of).collect();
    assert_eq!(sources, [None, None, None, None, None, Some(3), Some(4)]);
}

/// GLM 5.2's long files that do not say which layers choose.
#[test]
fn glm_5_chooses_in_each_fourth_layer_where_contexts_are_long() {
    let plain = || File::read("glm_moe_dsa").without("glm-dsa.attention.indexer.types");
    let sources = |file: File| {
        let spec = file.described().unwrap();
        let of = |at: usize| spec.layers[at].attention().unwrap().latent.unwrap().index.unwrap().of;
        [0, 1, 2, 3].map(of)
    };
    assert_eq!(sources(plain()), [None; 4]);
    let long = plain().with("glm-dsa.context_length", 0, &(1u32 << 20).to_le_bytes());
    assert_eq!(sources(long), [None, None, None, Some(2)]);
    assert_eq!(sources(File::read("glm_moe_dsa")), [None, None, Some(1), None]);
}
