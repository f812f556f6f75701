"""Do cards, libraries and profiles work as Python's own data does?"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints
from xml.etree import ElementTree

import pytest

import skulk
from conftest import FIXTURES

LIBRARY = skulk.CardLibrary()
GEMMA = "google/gemma-3-270m"
STORIES = FIXTURES / "stories260K"

MINIMAL = """
model_id = "acme/small"
n_layers = 2
hidden_size = 8
supports_tensor = false
tasks = ["TextGeneration"]
[storage_size]
in_bytes = 1000
"""


def minimal(**fields: Any) -> skulk.ModelCard:
    card = skulk.ModelCard(
        model_id="acme/small",
        storage_size=skulk.StorageSize(1000),
        n_layers=2,
        hidden_size=8,
        supports_tensor=False,
        tasks=("TextGeneration",),
    )
    return dataclasses.replace(card, **fields)


def test_a_card_made_of_its_fields_is_the_card_that_is_read() -> None:
    assert minimal() == skulk.ModelCard.from_toml(MINIMAL)
    sections = {
        "vision": skulk.VisionCardConfig(image_token_id=7, weights_repo="acme/small"),
        "reasoning": skulk.ReasoningCardConfig(format="none", default_effort="low"),
        "modalities": skulk.ModalitiesCardConfig(),
        "tooling": skulk.ToolingCardConfig(builtin_tools=("web_search",)),
        "runtime": skulk.RuntimeCardConfig(served_spec_n_max=3),
        "components": (skulk.ComponentInfo("unet", "unet/", skulk.StorageSize(5), True),),
        "placement": skulk.PlacementCardConfig(("mlx", "skulk-cpu"), 1.5, 4096, ("skulk-cpu",)),
        "facts": skulk.ModelFacts(
            vocab_size=512,
            layers=("window", "full"),
            attention=skulk.AttentionFacts(heads=4, head_size=16),
            window=skulk.WindowFacts(size=32),
            experts=skulk.ExpertFacts(count=8, per_token=2, size=64),
        ),
    }
    card = minimal(**sections)
    for again in (skulk.ModelCard.from_toml(card.to_toml()), skulk.ModelCard.from_json(card.to_json())):
        assert again == card and hash(again) == hash(card)
    assert pickle.loads(pickle.dumps(card)) == card != minimal()
    assert card.to_dict()["placement"]["minVramGib"] == 1.5
    with pytest.raises(dataclasses.FrozenInstanceError):
        card.n_layers = 3  # type: ignore[misc]
    halved = minimal(family="\ud800")
    for use in (halved.to_json, halved.profile, lambda: skulk.plan(halved), lambda: halved.save("card.toml")):
        with pytest.raises(skulk.InvalidArgumentError) as caught:
            use()
        assert caught.value.context["field"] == "card"


def test_fields_and_closed_sets_are_those_of_the_schema() -> None:
    schema = skulk.ModelCard.schema()
    seen: set[str] = set()

    def compare(cls: type[Any], section: dict[str, Any]) -> None:
        seen.add(cls.__name__)
        hints = get_type_hints(cls)
        assert sorted(section["properties"]) == sorted(field.name for field in dataclasses.fields(cls))
        for name, described in section["properties"].items():
            targets = [described, *described.get("anyOf", []), described.get("items", {})]
            target = next((one["$ref"].removeprefix("#/$defs/") for one in targets if "$ref" in one), None)
            if target is None:
                continue
            definition = schema["$defs"][target]
            if "properties" in definition:
                compare(getattr(skulk, target), definition)
            else:
                seen.add(target)
                assert literals(hints[name]) == [value["const"] for value in definition["oneOf"]], name

    compare(skulk.ModelCard, schema)
    assert seen == {"ModelCard", *schema["$defs"]}


def literals(hint: Any) -> list[str]:
    """The texts that a type allows."""
    found: list[str] = []
    for member in get_args(hint):
        found += [member] if isinstance(member, str) else literals(member)
    return found


def test_all_faults_are_told() -> None:
    with pytest.raises(skulk.CardInvalidError) as caught:
        skulk.ModelCard.from_json('{"modelId": "acme/small", "nLayers": 0, "colour": "red"}')
    error = caught.value
    first, second, *others = error.faults
    assert (first.field, first.kind, first.found) == ("nLayers", "range", "0") and first.allowed
    assert (second.field, second.kind) == ("colour", "unknown")
    assert {fault.kind for fault in others} == {"missing"}
    assert error.detail == {"faults": error.faults}
    assert pickle.loads(pickle.dumps(error)).faults == error.faults


def test_texts_that_are_no_cards_say_where() -> None:
    for text, read in (("n_layers = ", skulk.ModelCard.from_toml), ("{", skulk.ModelCard.from_json)):
        with pytest.raises(skulk.CardInvalidError) as caught:
            read(text)
        assert caught.value.faults == [] and caught.value.detail is None
        assert caught.value.context["line"] == "1"


@pytest.mark.parametrize(
    ("fields", "field", "kind"),
    [
        ({"n_layers": 0}, "n_layers", "range"),
        ({"n_layers": "2"}, "n_layers", "type"),
        ({"model_id": ""}, "model_id", "value"),
        ({"tasks": ("Dreams",)}, "tasks", "value"),
        ({"n_layers": 2**70}, "n_layers", "type"),
        ({"runtime": skulk.RuntimeCardConfig(mtp_heads=True)}, "runtime.mtp_heads", "conflict"),
    ],
)
def test_cards_are_checked_when_they_are_used(fields: dict[str, Any], field: str, kind: str) -> None:
    card = minimal(**fields)
    for use in (card.to_json, card.profile, lambda: skulk.plan(card), lambda: card.save("never.toml")):
        with pytest.raises(skulk.CardInvalidError) as caught:
            use()
        assert [(fault.field, fault.kind) for fault in caught.value.faults] == [(field, kind)]
    assert not Path("never.toml").exists()


def test_what_facts_add_up_to_is_known() -> None:
    card = LIBRARY["mlx-community/DeepSeek-V3.1-4bit"]
    assert card.parameters is not None and card.parameters // 10**9 == 671 and card.fact_findings == []
    assert card.size_by_facts == pytest.approx(card.storage_size.in_bytes, rel=0.1)
    assert minimal().parameters is None and minimal().size_by_facts is None and minimal().fact_findings == []

    def small(width: int, **fields: Any) -> skulk.ModelCard:
        facts = skulk.ModelFacts(
            vocab_size=128_256,
            tied_embeddings=True,
            feed_forward_size=width,
            attention=skulk.AttentionFacts(heads=32, head_size=64),
        )
        sizes = {"n_layers": 16, "hidden_size": 2048, "num_key_value_heads": 8, "quantization": "bf16"}
        return minimal(storage_size=skulk.StorageSize(2_470_000_000), facts=facts, **sizes, **fields)

    assert small(8192).size_by_facts == 2 * (small(8192).parameters or 0) > 2_400_000_000
    (fault,) = small(81_920).fact_findings
    assert isinstance(fault, skulk.CardFault)
    assert fault.field == "facts" and "16.97 GB" in fault.found and fault.allowed
    assert small(81_920).parameters is None and small(81_920).size_by_facts is None
    with pytest.raises(skulk.CardInvalidError):
        _ = small(8192, model_id="").parameters


def test_cards_go_through_files(tmp_path: Path) -> None:
    card = LIBRARY[GEMMA]
    for name in (card.file_name, "card.json"):
        card.save(tmp_path / name)
        assert skulk.ModelCard.open(str(tmp_path / name)) == card
    assert card.file_name == "google--gemma-3-270m.toml"
    with pytest.raises(skulk.InvalidArgumentError):
        minimal(model_id="../up").file_name
    with pytest.raises(FileNotFoundError):
        skulk.ModelCard.open(tmp_path / "none.toml")
    with pytest.raises(skulk.FileIoError):
        card.save(tmp_path / "no" / "such.toml")


def test_a_checkpoint_has_a_card() -> None:
    card = skulk.ModelCard.from_checkpoint(STORIES)
    config = skulk.Model.load(STORIES, threads=1).arch
    assert (card.n_layers, card.hidden_size) == (config.n_layers, config.hidden_size)
    assert card.context_length == config.context_length
    assert "skulk-cpu" in card.placement.compatible_backends
    with pytest.raises(FileNotFoundError):
        skulk.ModelCard.from_checkpoint("no/such/model.gguf")


def test_a_card_shows_as_a_table() -> None:
    card = minimal(model_id="<script>", runtime=skulk.RuntimeCardConfig(mtp_max_depth=3))
    html = card._repr_html_()
    assert "<script>" not in html
    rows = {row[0].text: row[1].text for row in ElementTree.fromstring(html).findall("tr")}
    assert rows["model_id"] == "<script>" and rows["runtime.mtp_max_depth"] == "3"
    assert rows["supports_tensor"] == "no" and "gguf_file" not in rows
    assert repr(LIBRARY[GEMMA]) == "<skulk.ModelCard google/gemma-3-270m: 18 layers, 253113024 bytes>"


def test_the_library_is_a_mapping() -> None:
    assert isinstance(LIBRARY, Mapping)
    ids = list(LIBRARY)
    assert ids == sorted(ids) and len(ids) == len(LIBRARY) >= 120
    assert GEMMA in LIBRARY and "no/model" not in LIBRARY
    assert 3 not in LIBRARY  # type: ignore[comparison-overlap]
    assert LIBRARY[GEMMA].model_id == GEMMA and LIBRARY.get("no/model") is None
    with pytest.raises(KeyError, match="no/model"):
        LIBRARY["no/model"]
    assert [card.model_id for card in LIBRARY.values()] == ids
    assert LIBRARY.folders == [] and LIBRARY.problems == []
    assert len(skulk.CardLibrary(builtin=False)) == 0
    assert f"{len(ids)} cards" in repr(LIBRARY)


def test_folders_lie_over_the_built_in_cards(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("n_layers = 0")
    library = skulk.CardLibrary(tmp_path)
    (problem,) = library.problems
    assert isinstance(problem, skulk.CardInvalidError) and problem.faults
    assert problem.context["file"].endswith("bad.toml")

    card = dataclasses.replace(library[GEMMA], context_length=77)
    file = library.save(tmp_path, card)
    assert file == tmp_path / card.file_name == library.file(GEMMA)
    assert library[GEMMA] == dataclasses.replace(card, is_custom=True) != LIBRARY[GEMMA]
    assert LIBRARY.file(GEMMA) is None

    (tmp_path / "bad.toml").unlink()
    (tmp_path / "other.toml").write_text(MINIMAL)
    assert "acme/small" not in library
    library.reload()
    assert library["acme/small"].is_custom and library.problems == []
    assert library.remove(GEMMA) and library[GEMMA] == LIBRARY[GEMMA]
    assert not library.remove(GEMMA)
    with pytest.raises(skulk.InvalidArgumentError):
        library.save(tmp_path / "elsewhere", card)
    library.add_folder(tmp_path / "gone")
    assert library.folders == [tmp_path, tmp_path / "gone"]
    assert isinstance(library.problems[0], FileNotFoundError)


def test_profiles_say_what_a_model_can_do() -> None:
    profile = skulk.Profile.resolve("mlx-community/gemma-4-12B-it-4bit")
    assert profile.prompt_renderer == profile.output_parser == "gemma4"
    asked = skulk.Profile.resolve("mlx-community/gemma-4-12B-it-4bit", has_messages=True, has_tools=True)
    assert asked.prompt_renderer == "tokenizer"
    assert skulk.is_gemma4_family("google/gemma-4-e2b") and not skulk.is_gemma4_family(GEMMA)
    hinted = skulk.Profile.resolve("acme/m", tokenizer_tools=True, tokenizer_thinking=True)
    assert hinted.supports_tool_calling and hinted.thinking_format == "token_delimited"
    assert LIBRARY[GEMMA].profile() == skulk.Profile.resolve(GEMMA, LIBRARY[GEMMA])
    assert len(profile.to_dict()) == len(dataclasses.fields(profile)) == 15
    assert profile.to_dict()["supportsThinkingToggle"] is True


def test_requests_for_reasoning_are_read_by_profiles() -> None:
    profile = skulk.Profile.resolve("Qwen/Qwen3-8B")
    assert profile.reasoning("low") == skulk.Reasoning("low", True)
    assert profile.reasoning(enable_thinking=True) == skulk.Reasoning("medium", True)
    assert profile.reasoning("high", False) == skulk.Reasoning("none", False)
    assert profile.reasoning() == skulk.Reasoning(None, None)
    assert skulk.Profile.permissive().reasoning("xhigh").effort == "xhigh"
    with pytest.raises(skulk.InvalidArgumentError, match="one of `none`, `minimal`"):
        profile.reasoning("enormous")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [3, "acme/small", None, {"modelId": "acme/small"}])
def test_what_is_no_card_is_a_type_error(tmp_path: Path, wrong: Any) -> None:
    library = skulk.CardLibrary(tmp_path)
    with pytest.raises(TypeError):
        library.save(tmp_path, wrong)
    with pytest.raises(TypeError):
        skulk.Inventory.from_card(wrong)
