"""Which models do the tests run on? The fixtures, and the real one where it was fetched."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import pytest

import skulk

pytest.register_assert_rewrite("suites_cards", "suites_placements")

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "tests" / "fixtures" / "models"
EXAMPLES = REPOSITORY / "examples" / "python"
TINY_BERT = REPOSITORY / "tests" / "fixtures" / "embeddings" / "tiny-bert"
MINILM = Path(os.environ.get("SKULK_MINILM", REPOSITORY / ".cache" / "all-MiniLM-L6-v2"))
"""all-MiniLM-L6-v2, where tests/run fetched it."""
PROMPT = "Once upon a time"


@pytest.fixture(params=["stories260K", "llama", "gemma3"], scope="session")
def checkpoint(request: pytest.FixtureRequest) -> Path:
    """Each small checkpoint."""
    return FIXTURES / str(request.param)


@pytest.fixture(scope="session")
def stories() -> skulk.Model:
    """The smallest checkpoint, loaded."""
    return skulk.Model.load(FIXTURES / "stories260K", threads=1)


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """Gemma 3 270M Q4_K_M, which tests/run fetches."""
    cached = REPOSITORY / ".cache" / "gemma-3-270m-q4_k_m.gguf"
    path = Path(os.environ.get("SKULK_GEMMA_GGUF", cached))
    if not path.is_file():
        pytest.skip(f"the real model is not at {path}: run tests/run, or set SKULK_GEMMA_GGUF")
    return path


@pytest.fixture(scope="session")
def slow_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of 100 million zeros, whose prefill takes seconds, with the tokenizer of another."""
    folder = tmp_path_factory.mktemp("slow")
    source = FIXTURES / "stories260K"
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(source / name, folder)
    hidden, inner, layers, vocab = 1024, 4096, 6, 512
    config = json.loads((source / "config.json").read_text())
    config |= {"hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    config |= {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": hidden // 8}
    config |= {"max_position_embeddings": 8192, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    square, wide, tall = [hidden, hidden], [inner, hidden], [hidden, inner]
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}self_attn.{p}_proj.weight": square for p in "qkvo"}
        shapes |= {f"{prefix}mlp.{p}_proj.weight": wide for p in ("gate", "up")}
        shapes |= {f"{prefix}mlp.down_proj.weight": tall}
        shapes |= {f"{prefix}{p}_layernorm.weight": [hidden] for p in ("input", "post_attention")}
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return folder
