"""Do models load, and do generations say what they should?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest

import skulk
from conftest import FIXTURES, PROMPT


def test_a_model_says_what_it_is(checkpoint: Path) -> None:
    seen: list[tuple[int, int]] = []
    model = skulk.Model.load(
        str(checkpoint), stages=2, threads=1, context=128, progress=lambda done, total: seen.append((done, total))
    )
    layers = model.arch.n_layers
    assert seen == [(n + 1, layers) for n in range(layers)]
    assert model.context == 128
    assert model.load_seconds > 0
    assert model.arch.hidden_size > 0 and model.arch.context_length >= 128
    assert [n for stage in model.stages for n in stage.layers] == list(range(layers))
    for stage in model.stages:
        assert stage.engine == "cpu" and "1 thread" in stage.device
        assert stage.weight_bytes > 0 and stage.kv_cache_bytes > 0
        assert stage.engine in model.placement
    assert model.arch.family in repr(model) and f"{layers} layers" in repr(model)
    html = model._repr_html_()
    assert html.startswith("<table>") and html.count("<tr>") == 3


def test_kv_in_single_precision_takes_twice_the_memory(checkpoint: Path) -> None:
    half, bfloat, single = (
        skulk.Model.load(checkpoint, threads=1, kv=kv).stages[0].kv_cache_bytes for kv in ("f16", "bf16", "f32")
    )
    assert single == 2 * half == 2 * bfloat


def test_keys_and_values_are_in_bfloat16_on_the_cpu_unless_all_is_to_be_exact(checkpoint: Path) -> None:
    def told(**options: Any) -> list[float | None]:
        events = list(skulk.Model.load(checkpoint, threads=1, **options).generate(PROMPT, max_tokens=6, logprobs=1))
        return [event.token.logprob for event in events if event.token]

    assert told() == told(kv="bf16") != told(kv="f16")
    assert told(precision="exact") == told(precision="exact", kv="f16") != told(precision="exact", kv="bf16")


def test_quantised_keys_and_values_take_less_memory(checkpoint: Path) -> None:
    def kept(**options: Any) -> int:
        return skulk.Model.load(checkpoint, threads=1, **options).stages[0].kv_cache_bytes

    assert kept(kv="q4_0") < kept(kv="q8_0", kv_values="q4_0") < kept(kv="q8_0") < kept()
    model = skulk.Model.load(checkpoint, threads=1, kv="q8_0", kv_values="q4_0")
    assert model.generate("Once upon a time", max_tokens=4).text()
    with pytest.raises(skulk.InvalidArgumentError, match="`q8_0` or `q4_0`, found `q5_0`"):
        kept(kv_values="q5_0")


@pytest.mark.parametrize("precision", ["exact", "bf16"])
def test_models_run_in_every_precision(precision: Literal["exact", "bf16"]) -> None:
    assert skulk.Model.load(FIXTURES / "llama", precision=precision).generate("Once", max_tokens=4).text()


def test_weights_lie_where_they_are_asked_to(checkpoint: Path) -> None:
    texts = set()
    for memory in ("mapped", "resident", "auto"):
        model = skulk.Model.load(checkpoint, stages=2, threads=1, memory=memory)
        found = [stage.memory for stage in model.stages]
        assert all(m in ("mapped", "resident") if memory == "auto" else m == memory for m in found)
        texts.add(model.generate(PROMPT, max_tokens=8).text())
    assert len(texts) == 1


def test_layers_run_where_they_are_placed(stories: skulk.Model) -> None:
    path = FIXTURES / "stories260K"
    expected = stories.generate(PROMPT, max_tokens=24).text()
    placement = [("cpu", 3), ("cpu", 2)]
    model = skulk.Model.load(path, placement=placement, ffn_on_cpu=True, threads=1)
    assert [(stage.engine, len(stage.layers)) for stage in model.stages] == placement
    assert model.placement == "layers 0..3 on cpu → layers 3..5 on cpu"
    assert model.generate(PROMPT, max_tokens=24).text() == expected
    model = skulk.Model.load(path, engine="cpu", stages=2, threads=1)
    assert [stage.engine for stage in model.stages] == ["cpu"] * 2
    assert model.generate(PROMPT, max_tokens=24).text() == expected


def test_layers_run_on_a_gpu(stories: skulk.Model) -> None:
    cpu, *others = skulk.devices()
    assert (cpu.engine, cpu.software, cpu.shares_memory) == ("cpu", False, True)
    assert cpu.memory_bytes is None or cpu.memory_bytes > 1 << 28
    software = next(device.engine for device in others if device.software)
    expected = stories.generate(PROMPT, max_tokens=16).text()
    path = FIXTURES / "stories260K"
    model = skulk.Model.load(path, placement=[(software, 2), ("cpu", 3)], threads=1)
    assert [stage.engine for stage in model.stages] == [software, "cpu"]
    assert model.generate(PROMPT, max_tokens=16).text() == expected
    model = skulk.Model.load(path, engine=software, ffn_on_cpu=True, threads=1)
    assert "feed-forward on CPU" in model.stages[0].device
    assert model.generate(PROMPT, max_tokens=16).text() == expected


def test_feed_forward_weights_have_a_budget(stories: skulk.Model) -> None:
    path = FIXTURES / "stories260K"
    expected = stories.generate(PROMPT, max_tokens=16).text()
    model = skulk.Model.load(path, ffn_budget=140_000, threads=1)
    assert model.generate(PROMPT, max_tokens=16).text() == expected
    memory = model.ffn_memory
    assert memory is not None and memory.budget_bytes == 140_000
    assert 0 < memory.in_memory_bytes <= memory.peak_bytes <= 140_000 and memory.let_go_bytes > 0
    assert stories.ffn_memory is None
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        skulk.Model.load(path, ffn_budget=1000)
    assert "132096" in caught.value.message and caught.value.hint


def test_a_block_has_fewer_features(stories: skulk.Model) -> None:
    path = FIXTURES / "stories260K"
    expected = stories.generate(PROMPT, max_tokens=16).text()
    assert skulk.Model.load(path, ffn_top_features=172).generate(PROMPT, max_tokens=16).text() == expected
    assert skulk.Model.load(path, ffn_top_features=3).generate(PROMPT, max_tokens=16).text() != expected
    with pytest.raises(skulk.InvalidArgumentError):
        skulk.Model.load(path, ffn_top_features=0)
    fewer = skulk.Model.load(path, ffn_top_features=86, threads=1)
    found = fewer.divergence(stories, PROMPT)
    assert found.tokens == len(stories.tokenizer.encode(PROMPT)) and 0 < found.mean_kl <= found.max_kl
    assert 0 <= found.top1_agreement <= 1 and found == fewer.divergence(stories, stories.tokenizer.encode(PROMPT))
    assert stories.divergence(stories, PROMPT) == skulk.Divergence(found.tokens, 0.0, 0.0, 1.0)
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        fewer.divergence(stories, PROMPT, cancel=token)
    for mistaken in ("", [], [10**9]):
        with pytest.raises(skulk.InvalidArgumentError):
            fewer.divergence(stories, mistaken)
    with pytest.raises(TypeError):
        fewer.divergence(stories, 3)  # type: ignore[arg-type]


def test_device_memory_is_limited() -> None:
    software = next(device.engine for device in skulk.devices() if device.software)
    with pytest.raises(skulk.OutOfMemoryError) as caught:
        skulk.Model.load(FIXTURES / "stories260K", engine=software, device_memory=100_000)
    assert caught.value.hint
    with pytest.raises(skulk.InvalidArgumentError):
        skulk.Model.load(FIXTURES / "stories260K", engine=software, device_memory=-1)


def test_the_tokenizer_goes_both_ways(checkpoint: Path) -> None:
    tokenizer = skulk.Model.load(checkpoint, threads=1).tokenizer
    reference = json.loads((checkpoint / "reference.json").read_text())
    assert tokenizer.eos_ids == reference["eos_ids"]
    for prompt in reference["prompts"]:
        assert tokenizer.encode(prompt["text"], prompt["add_special_tokens"]) == prompt["ids"]
    ids = tokenizer.encode(PROMPT, add_special=False)
    assert tokenizer.bos not in ids
    assert tokenizer.decode(ids) == PROMPT
    assert max(ids) < tokenizer.vocab_size
    assert str(tokenizer.vocab_size) in repr(tokenizer)


def test_greedy_tokens_are_the_reference(checkpoint: Path) -> None:
    reference = json.loads((checkpoint / "reference.json").read_text())["prompts"][0]
    model = skulk.Model.load(checkpoint, threads=2, kv="f32")
    expected = reference["greedy"]["ids"]
    output = model.generate(reference["ids"], max_tokens=len(expected), ignore_eos=True).output()
    assert output.ids == expected


def test_events_join_to_the_text(checkpoint: Path) -> None:
    model = skulk.Model.load(checkpoint, threads=1)
    events = list(model.generate(PROMPT, max_tokens=24, ignore_eos=True))
    assert all(event.finish is None for event in events[:-1])
    finish = events[-1].finish
    assert finish is not None and finish.reason == "length"
    assert finish.usage.completion_tokens == 24
    assert finish.usage.prompt_tokens == len(model.tokenizer.encode(PROMPT))
    assert finish.usage.cached_tokens == 0
    assert finish.timings.load == pytest.approx(model.load_seconds)
    assert 0 < finish.timings.prefill <= finish.timings.time_to_first_token
    assert finish.timings.decode > 0 and finish.timings.decode_tokens_per_second > 0
    output = model.generate(PROMPT, max_tokens=24, ignore_eos=True).output()
    assert "".join(map(str, events)) == output.text == str(output)
    assert [event.token.id for event in events if event.token] == output.ids
    assert model.generate(PROMPT, max_tokens=24, ignore_eos=True).text() == output.text


def test_text_is_what_was_not_read_yet(stories: skulk.Model) -> None:
    whole = stories.generate(PROMPT, max_tokens=12).text()
    generation = stories.generate(PROMPT, max_tokens=12)
    assert generation.prompt_ids == stories.tokenizer.encode(PROMPT)
    first = next(generation)
    assert first.text + generation.text() == whole
    assert list(generation) == []
    with pytest.raises(skulk.InvalidArgumentError, match="at its end"):
        generation.text()


@pytest.mark.parametrize("options", [{"stages": 5}, {"threads": 2}, {"prefill_chunk": 3}])
def test_how_it_is_computed_does_not_change_the_text(stories: skulk.Model, options: dict[str, Any]) -> None:
    model = skulk.Model.load(FIXTURES / "stories260K", **({"threads": 1} | options))
    samplings: list[dict[str, Any]] = [{}, {"temperature": 1.0, "seed": 3}]
    for sampling in samplings:
        expected = stories.generate(PROMPT, max_tokens=40, **sampling).output()
        assert model.generate(PROMPT, max_tokens=40, **sampling).output().ids == expected.ids


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3, "logprobs": 1}])
def test_tokens_ahead_are_those_one_by_one(stories: skulk.Model, sampling: dict[str, Any]) -> None:
    def told(**options: Any) -> skulk.Output:
        return stories.generate(PROMPT, max_tokens=60, ignore_eos=True, **sampling, **options).output()

    alone = told(speculate="off")
    timings = alone.finish.timings
    assert (timings.drafted_tokens, timings.accepted_tokens, timings.draft_steps) == (0, 0, 0)
    quoted = told(draft_texts=[PROMPT + alone.text, "and another"], draft_tokens=3)
    assert (quoted.ids, quoted.text) == (alone.ids, alone.text) == (told().ids, told().text)
    timings = quoted.finish.timings
    assert 20 < timings.accepted_tokens <= timings.drafted_tokens <= 3 * timings.draft_steps
    assert timings.draft_gain > 0


def test_a_draft_model_changes_no_text() -> None:
    llama = FIXTURES / "llama"
    model = skulk.Model.load(llama, draft_model=llama, threads=1)
    assert model.memory.draft_model is not None
    assert model.memory.draft_model.layers == model.stages[0].layers
    alone = model.generate(PROMPT, max_tokens=40, ignore_eos=True, speculate="off").output()
    ahead = model.generate(PROMPT, max_tokens=40, ignore_eos=True, speculate="draft_model", draft_tokens=3).output()
    timings = ahead.finish.timings
    assert (ahead.ids, ahead.finish.warnings) == (alone.ids, [])
    assert timings.accepted_tokens == timings.drafted_tokens > 20
    report = model.tune_speculation([PROMPT], max_tokens=12, ignore_eos=True)
    assert [way.speculate for way in report.ways] == ["off", *["ngram"] * 5, *["draft_model"] * 5, "auto"]
    assert report.best is not None and report.best.gain == max(way.gain for way in report.ways) > 0
    assert str(report).count("\n") == 14 and "draft_model, 8 a step" in str(report)
    assert report._repr_html_().count("<rect") == 12
    with pytest.raises(skulk.InvalidArgumentError, match="speculate"):
        model.tune_speculation([PROMPT], speculate="off")
    with pytest.raises(skulk.TokenizerInvalidError, match="same vocabulary"):
        skulk.Model.load(FIXTURES / "stories260K", draft_model=str(llama))


def test_a_head_for_tokens_ahead_changes_no_text() -> None:
    path = FIXTURES / "qwen3_5"
    model = skulk.Model.load(path, threads=1)
    assert model.memory.draft_model is not None
    assert model.memory.draft_model.layers == range(1)
    alone = model.generate(PROMPT, max_tokens=60, ignore_eos=True, speculate="off").output()
    ahead = model.generate(PROMPT, max_tokens=60, ignore_eos=True, speculate="draft_model", draft_tokens=2).output()
    assert ahead.ids == alone.ids
    assert ahead.finish.timings.accepted_tokens > 20
    assert skulk.Model.load(path, threads=1, mtp=False).memory.draft_model is None
    with pytest.raises(skulk.InvalidArgumentError, match="head for tokens ahead"):
        skulk.Model.load(FIXTURES / "llama", mtp=True)


@pytest.mark.parametrize(("name", "beside"), [("gemma4", "gemma4_assistant"), ("llama", "llama_eagle3")])
def test_assistants_and_eagle_heads_change_no_text(name: str, beside: str) -> None:
    drafts = FIXTURES.parent / "ahead" / beside
    model = skulk.Model.load(FIXTURES / name, draft_model=drafts, threads=1)
    assert model.memory.draft_model is not None
    alone = model.generate(PROMPT, max_tokens=60, ignore_eos=True, speculate="off").output()
    ahead = model.generate(PROMPT, max_tokens=60, ignore_eos=True, speculate="draft_model", draft_tokens=2).output()
    assert (ahead.ids, ahead.finish.warnings) == (alone.ids, [])
    assert 0 < ahead.finish.timings.accepted_tokens < ahead.finish.timings.drafted_tokens
    trees: dict[str, Any] = {"speculate": "draft_model", "draft_tokens": 2, "draft_tree": True}
    tree = model.generate(PROMPT, max_tokens=60, ignore_eos=True, **trees).output()
    assert (tree.ids, tree.finish.warnings) == (alone.ids, [])
    assert tree.finish.timings.drafted_tokens > ahead.finish.timings.drafted_tokens
    assert tree.finish.timings.draft_steps <= ahead.finish.timings.draft_steps
    with pytest.raises(skulk.ArchUnsupportedError, match="drafts for one"):
        skulk.Model.load(drafts)


def test_the_seed_fixes_the_text(stories: skulk.Model) -> None:
    def text(seed: int) -> str:
        return stories.generate(PROMPT, max_tokens=30, temperature=1.0, seed=seed).text()

    assert text(7) == text(7) != text(8)
    assert text(2**64 - 1)


def test_logprobs_come_on_request(stories: skulk.Model) -> None:
    for event in stories.generate(PROMPT, max_tokens=6, logprobs=3):
        token = event.token
        assert token is not None and token.logprob is not None
        likeliest = token.top_logprobs
        assert len(likeliest) == 3 and likeliest[0].id == token.id
        assert likeliest[0].logprob == token.logprob <= 0
        assert sum(math.exp(t.logprob) for t in likeliest) <= 1.0001
    event = next(stories.generate(PROMPT, max_tokens=1))
    assert event.token and event.token.logprob is None and event.token.top_logprobs == []


def test_options_reach_the_sampler(stories: skulk.Model) -> None:
    def ids(**options: Any) -> list[int]:
        return stories.generate(PROMPT, max_tokens=40, **options).output().ids

    greedy = ids()
    assert ids(logit_bias={greedy[0]: float("-inf")})[0] != greedy[0]
    assert ids(temperature=2.0, top_k=1) == greedy
    assert ids(temperature=2.0, top_p=1e-6) == greedy
    assert ids(temperature=2.0, min_p=1.0) == greedy
    assert ids(repetition_penalty=5.0) != greedy
    assert ids(presence_penalty=50.0) != greedy
    assert ids(frequency_penalty=50.0) != greedy
    assert ids(repetition_penalty=5.0, penalty_window=0) == greedy


def test_stop_texts_end_it(stories: skulk.Model) -> None:
    whole = stories.generate(PROMPT, max_tokens=40).text()
    stop = whole[10:14]
    output = stories.generate(PROMPT, max_tokens=40, stop=["never in it", stop]).output()
    assert output.finish.reason == "stop"
    assert output.text == whole[: whole.index(stop)]


def test_the_end_of_sequence_ends_it(stories: skulk.Model) -> None:
    end = stories.tokenizer.eos_ids[0]
    output = stories.generate(PROMPT, max_tokens=4, logit_bias={end: 1e9}).output()
    assert output.finish.reason == "eos" and output.ids == [end] and output.text == ""


def test_values_compare_and_match(stories: skulk.Model) -> None:
    match next(stories.generate(PROMPT, max_tokens=1)):
        case skulk.Event(token=skulk.Token(id=id), finish=skulk.Finish(reason="length")):
            assert id >= 0
        case event:
            pytest.fail(f"unexpected {event!r}")
    assert skulk.Usage(1, 2, 3) == skulk.Usage(1, 2, 3)


def test_the_real_model_speaks(gemma_path: Path) -> None:
    model = skulk.Model.load(gemma_path, stages=3, threads=2, context=512)
    assert model.arch.family == "gemma3"
    assert "France" in model.generate("The capital of France is", max_tokens=8).text()
