"""Writes a GGUF file with the widths of a published model and random weights: for speed, it talks nonsense.

`mixture` has those of Qwen3-30B-A3B, `ahead` those of Qwen3-4B and a head for tokens ahead (MTP) behind its layers, as
Qwen 3.5 has one. Fewer layers than the original change nothing but the size: each is as large, and as sparse.
Matrices are Q4_K, the head Q6_K, routers and norms f32, as in a Q4_K_S file. The vocabulary is the
beginning of another file's.
"""

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


@dataclass
class Widths:
    arch: str
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    experts: int = 0
    used: int = 0
    heads_ahead: int = 0


KINDS = {
    # 4.65 GB.
    "mixture": Widths("qwen3moe", "synthetic mixture of experts", 12, 2048, 32, 4, 128, 768, experts=128, used=8),
    # 2.7 GB.
    "ahead": Widths("qwen3", "synthetic head for tokens ahead", 36, 2560, 32, 8, 128, 9728, heads_ahead=1),
}
VOCABULARY = 151_936
# Bytes of a block of 256, and where its half-precision scales lie with what they are worth: random
# integers times these have about the spread of trained weights of unit gain.
BLOCKS = {Type.Q4_K: (144, {0: 1 / 240, 2: 7.5 / 240}), Type.Q6_K: (210, {208: 1 / 1370})}


def layer(of, i):
    """Names, shapes and types of a layer's tensors."""
    q, kv = of.heads * of.head_dim, of.kv_heads * of.head_dim
    tensors = {
        "attn_norm": ((of.hidden,), Type.F32),
        "attn_q": ((q, of.hidden), Type.Q4_K),
        "attn_k": ((kv, of.hidden), Type.Q4_K),
        "attn_v": ((kv, of.hidden), Type.Q4_K),
        "attn_q_norm": ((of.head_dim,), Type.F32),
        "attn_k_norm": ((of.head_dim,), Type.F32),
        "attn_output": ((of.hidden, q), Type.Q4_K),
        "ffn_norm": ((of.hidden,), Type.F32),
    }
    experts, end = ((of.experts,), "_exps") if of.experts else ((), "")
    if of.experts:
        tensors["ffn_gate_inp"] = ((of.experts, of.hidden), Type.F32)
    tensors |= {
        f"ffn_gate{end}": ((*experts, of.width, of.hidden), Type.Q4_K),
        f"ffn_up{end}": ((*experts, of.width, of.hidden), Type.Q4_K),
        f"ffn_down{end}": ((*experts, of.hidden, of.width), Type.Q4_K),
    }
    if i >= of.layers:
        tensors |= {f"nextn.{norm}": ((of.hidden,), Type.F32) for norm in ["enorm", "hnorm", "shared_head_norm"]}
        tensors["nextn.eh_proj"] = ((of.hidden, 2 * of.hidden), Type.Q4_K)
    return {f"blk.{i}.{name}.weight": tensor for name, tensor in tensors.items()}


def values(rng, shape, dtype):
    """A tensor as stored: norms of ones, otherwise noise."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    gain = 1 / math.sqrt(shape[-1])
    if dtype == Type.F32:
        return rng.standard_normal(shape, np.float32) * np.float32(4 * gain)
    size, scales = BLOCKS[dtype]
    blocks = rng.integers(0, 256, (math.prod(shape) // 256, size), np.uint8)
    for at, scale in scales.items():
        blocks[:, at : at + 2] = np.array([scale * gain], np.float16).view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def add_vocabulary(writer, path):
    fields = gguf.GGUFReader(path).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    writer.add_tokenizer_model(read("model"))
    writer.add_tokenizer_pre(read("pre"))
    writer.add_token_list(read("tokens")[:VOCABULARY])
    writer.add_token_scores(read("scores")[:VOCABULARY])
    writer.add_token_types(read("token_type")[:VOCABULARY])
    writer.add_bos_token_id(read("bos_token_id"))
    writer.add_eos_token_id(read("eos_token_id"))
    writer.add_unk_token_id(read("unknown_token_id"))
    writer.add_pad_token_id(read("padding_token_id"))
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", type=Path, required=True, help="GGUF file with a SentencePiece vocabulary")
    parser.add_argument("--kind", choices=KINDS, default="mixture")
    args = parser.parse_args()
    of = KINDS[args.kind]

    unfinished = args.out.with_suffix(f".{os.getpid()}")
    writer = gguf.GGUFWriter(unfinished, of.arch)
    writer.add_name(of.name)
    writer.add_block_count(of.layers + of.heads_ahead)
    if of.heads_ahead:
        writer.add_nextn_predict_layers(of.heads_ahead)
    writer.add_context_length(32768)
    writer.add_embedding_length(of.hidden)
    writer.add_feed_forward_length(max(of.used, 1) * of.width)
    writer.add_head_count(of.heads)
    writer.add_head_count_kv(of.kv_heads)
    writer.add_key_length(of.head_dim)
    writer.add_value_length(of.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    if of.experts:
        writer.add_expert_count(of.experts)
        writer.add_expert_used_count(of.used)
        writer.add_expert_feed_forward_length(of.width)
    writer.add_vocab_size(VOCABULARY)
    writer.add_quantization_version(2)
    add_vocabulary(writer, args.tokenizer)

    tensors = {"token_embd.weight": ((VOCABULARY, of.hidden), Type.Q4_K)}
    for i in range(of.layers + of.heads_ahead):
        tensors |= layer(of, i)
    tensors |= {"output_norm.weight": ((of.hidden,), Type.F32), "output.weight": ((VOCABULARY, of.hidden), Type.Q6_K)}
    for name, (shape, dtype) in tensors.items():
        if dtype == Type.F32:
            writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * math.prod(shape))
        else:
            stored = (*shape[:-1], shape[-1] // 256 * BLOCKS[dtype][0])
            writer.add_tensor_info(name, stored, np.dtype(np.uint8), math.prod(stored), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(1)
    for shape, dtype in tensors.values():
        writer.write_tensor_data(values(rng, shape, dtype))
    writer.close()
    unfinished.rename(args.out)


main()
