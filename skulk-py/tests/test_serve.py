"""Do other processes' servers compute what this one does not, and do conversations go on without them?"""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import skulk
from conftest import FIXTURES, PROMPT

STORIES, WIDE, MIXTRAL = FIXTURES / "stories260K", FIXTURES / "llama", FIXTURES / "mixtral"


def serve(path: Path, **options: Any) -> skulk.Server:
    return skulk.serve(path, threads=1, **options)


def load(path: Path, *servers: skulk.Server, **options: Any) -> skulk.Model:
    return skulk.Model.load(path, threads=1, ffn_at=[server.address for server in servers], **options)


@pytest.mark.parametrize("path", [STORIES, MIXTRAL], ids=lambda path: path.name)
def test_what_a_server_computes_says_the_same(path: Path) -> None:
    alone = skulk.Model.load(path, threads=1)
    with serve(path) as server, load(path, server) as model:
        assert server.address in model.stages[0].device
        assert model.generate(PROMPT, max_tokens=24).output().ids == alone.generate(PROMPT, max_tokens=24).output().ids
        assert (model.logits(PROMPT) == alone.logits(PROMPT)).all()
        assert "skulk_ffn" in server.metrics
        assert server.address in repr(server)


def test_links_are_measured() -> None:
    with serve(STORIES, key="k") as server:
        speed = skulk.Node.measure_link(server.address, key="k", timeout=20.0)
        assert 0 < speed.round_trip_seconds < 1 and speed.bytes_per_second > 1e5
        assert skulk.Cluster.mesh([skulk.Node("a"), skulk.Node("b")], speed).to_json()
        with pytest.raises(skulk.PeerFailedError):
            skulk.Node.measure_link(server.address)
        cancel = skulk.CancelToken()
        cancel.cancel()
        with pytest.raises(skulk.CancelledError):
            skulk.Node.measure_link(server.address, key="k", cancel=cancel)
    with pytest.raises(skulk.PeerLostError):
        skulk.Node.measure_link(server.address, key="k")
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        skulk.Node.measure_link("here")
    assert caught.value.context["field"] == "address"
    with pytest.raises(skulk.InvalidArgumentError) as caught:
        skulk.Node.measure_link(server.address, timeout=0.0)
    assert caught.value.context["field"] == "timeout"


def test_servers_share_layers_and_experts() -> None:
    alone = skulk.Model.load(MIXTRAL, threads=1)
    with serve(MIXTRAL, experts=range(4)) as first, serve(MIXTRAL, experts=range(4, 8), layers=range(1, 3)) as second:
        model = load(MIXTRAL, first, second)
        assert all(server.address in model.stages[0].device for server in (first, second))
        assert model.generate(PROMPT, max_tokens=24).text() == alone.generate(PROMPT, max_tokens=24).text()


def test_rows_can_go_as_integers() -> None:
    with serve(WIDE) as server:
        exact, rounded = (load(WIDE, server, peer_rows_q8k=rows).logits(PROMPT) for rows in (False, True))
    off = abs(rounded - exact).max()
    # Integers of 8 bits lose 1/254 of the largest of a block.
    assert 0 < off < 0.05 * abs(exact).max()
    with serve(STORIES) as server, pytest.raises(skulk.InvalidArgumentError) as raised:
        load(STORIES, server, peer_rows_q8k=True)
    assert raised.value.context["field"] == "peer_rows_q8k"


def test_a_key_is_asked_for(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/s" if hasattr(os, "fork") else "http://127.0.0.1:0"
    with serve(STORIES, key="a-long-key", listen=socket) as server:
        if hasattr(os, "fork"):
            assert server.address == socket
        assert load(STORIES, server, peer_key="a-long-key").generate(PROMPT, max_tokens=4).text()
        for key in ("another", None):
            with pytest.raises(skulk.PeerFailedError) as raised:
                load(STORIES, server, peer_key=key)
            assert raised.value.retry == "after_replan" and raised.value.code == "peer.failed"


def test_a_server_that_is_not_there_is_lost() -> None:
    server = serve(STORIES)
    server.stop()
    with pytest.raises(skulk.PeerLostError) as raised:
        load(STORIES, server, peer_timeout=2)
    assert raised.value.code == "peer.lost" and raised.value.context["peer"] == server.address


def cut_off(session: skulk.Session, server: skulk.Server, **options: Any) -> str:
    """The text until the server was lost."""
    text = ""
    with pytest.raises(skulk.PeerLostError) as raised:
        for event in session.generate(PROMPT, **options):
            text += event.text
            server.stop()
    assert raised.value.retry == "after_replan"
    assert text
    return text


@pytest.mark.parametrize(("path", "layers"), [(STORIES, 5), (MIXTRAL, 3)], ids=["stories260K", "mixtral"])
def test_a_conversation_goes_on_elsewhere(path: Path, layers: int) -> None:
    options: Any = {"max_tokens": 200, "ignore_eos": True, "temperature": 1.2, "seed": 3}
    expected = skulk.Model.load(path, threads=1).generate(PROMPT, **options).output()
    server = serve(path)
    model = load(path, server)
    session = model.session()
    text = cut_off(session, server, **options)
    gc.collect()
    recovered = session.recover([("cpu", layers)])
    rest = recovered.resume().output()
    assert text + rest.text == expected.text
    assert rest.finish.usage.completion_tokens == 200
    assert recovered.tokens[-200:] == expected.ids
    with pytest.raises(skulk.InvalidArgumentError, match="cut off"):
        recovered.resume()


def test_conversations_share_a_model_that_was_placed_otherwise() -> None:
    server = serve(STORIES)
    model = load(STORIES, server)
    first, second = model.session(), model.session()
    token = skulk.CancelToken()
    text = cut_off(first, server, max_tokens=100, ignore_eos=True, cancel=token)
    with pytest.raises(skulk.PeerLostError):
        second.generate(PROMPT, max_tokens=8).text()
    # It is for what was cut off.
    token.cancel()
    elsewhere = model.replan(skulk.Placement.by_counts([("cpu", 2), ("cpu", 3)]))
    assert len(elsewhere.stages) == 2
    expected = elsewhere.generate(PROMPT, max_tokens=100, ignore_eos=True).text()
    assert text + first.recover_in(elsewhere).resume().text() == expected
    assert second.recover_in(elsewhere).resume().text() == elsewhere.generate(PROMPT, max_tokens=8).text()
    for place in (model.replan, first.recover):
        with pytest.raises(skulk.CancelledError):
            place([("cpu", 5)], cancel=token)
    with pytest.raises(skulk.SessionMismatchError):
        first.recover_in(skulk.Model.load(FIXTURES / "llama"))
    with pytest.raises(skulk.PlacementInvalidError):
        first.recover([("cpu", 4)])


def test_what_resumes_can_be_cancelled() -> None:
    server = serve(STORIES)
    session = load(STORIES, server).session()
    cut_off(session, server, max_tokens=400, ignore_eos=True)
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        session.recover([("cpu", 5)]).resume(cancel=token).text()


PEM = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("listen", {"listen": "ftp://here"}),
        ("listen", {"listen": 3}),
        ("layers", {"layers": range(9)}),
        ("layers", {"layers": range(0, 4, 2)}),
        ("layers", {"layers": range(0)}),
        ("key", {"key": ""}),
        ("key", {"listen": "http://0.0.0.0:0"}),
        ("identity", {"identity": "none", "listen": "https://127.0.0.1:0"}),
        ("identity", {"listen": "https://127.0.0.1:0"}),
        ("clients", {"clients": "none"}),
        ("max_rows", {"max_rows": 0}),
        ("queue", {"queue": 0}),
        ("max_connection", {"max_connection": 1}),
        ("precision", {"precision": "best"}),
    ],
)
def test_options_of_serving_that_cannot_be_are_named(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(skulk.InvalidArgumentError) as raised:
        serve(STORIES, **options)
    assert raised.value.context["field"] == field


@pytest.mark.parametrize(
    "options",
    [
        {"ffn_at": ["here"]},
        {"ffn_at": "http://127.0.0.1:1"},
        {"addresses": {"shed": 3}},
        {"peer_roots": "none"},
        {"peer_identity": PEM},
        {"peer_wire": "f64"},
        {"peer_timeout": 0},
        {"peer_timeout": float("nan")},
    ],
)
def test_options_of_peers_that_cannot_be_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(skulk.InvalidArgumentError) as raised:
        skulk.Model.load(STORIES, **options)
    assert raised.value.context["field"] in options
    assert "BEGIN" not in str(raised.value)


def test_serving_needs_a_checkpoint_and_can_be_cancelled() -> None:
    with pytest.raises(FileNotFoundError):
        skulk.serve("no/such/model")
    token = skulk.CancelToken()
    token.cancel()
    with pytest.raises(skulk.CancelledError):
        serve(STORIES, cancel=token)


def test_a_server_stops_once_and_for_all() -> None:
    with serve(STORIES) as server:
        waiting = threading.Thread(target=server.wait)
        waiting.start()
        assert waiting.is_alive()
        for grace in (-1, float("nan"), float("inf")):
            with pytest.raises(skulk.InvalidArgumentError) as raised:
                server.stop(grace=grace)
            assert raised.value.context["field"] == "grace"
        server.stop(grace=1)
        server.stop()
        server.wait()
        waiting.join(timeout=10)
        assert not waiting.is_alive()
    assert "skulk_ffn" in server.metrics


def test_a_dropped_server_stops() -> None:
    server = serve(STORIES)
    address = server.address
    del server
    gc.collect()
    with pytest.raises(skulk.PeerLostError):
        skulk.Model.load(STORIES, ffn_at=[address], peer_timeout=2)
    with pytest.raises(skulk.InvalidArgumentError, match="no path behind the host") as caught:
        skulk.Model.load(STORIES, ffn_at=[f"{address}/v1"])
    assert caught.value.context["field"] == "ffn_at"


def test_ctrl_c_ends_waiting_and_the_server_goes_on() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with serve(STORIES) as server:
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            started = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                server.wait()
            assert time.monotonic() - started < 5
            assert load(STORIES, server).generate(PROMPT, max_tokens=4).text()
    finally:
        signal.signal(signal.SIGINT, before)


def test_placements_have_addresses() -> None:
    placement = skulk.Placement.by_counts([("cpu", 5)])
    assert placement.addresses == {}
    there = placement.with_address("shed", "http://127.0.0.1:1").with_address("attic", "unix:///run/skulk")
    assert there.addresses == {"attic": "unix:///run/skulk", "shed": "http://127.0.0.1:1"}
    assert placement.addresses == {}


def test_what_a_placement_has_elsewhere_is_computed_there() -> None:
    data = skulk.Placement.by_counts([("cpu", 3)]).to_dict()
    span = {"startLayer": 0, "endLayer": 3, "startExpert": 0, "endExpert": 8, "nExperts": 8, "replica": False}
    data["SkulkInstance"]["experts"] = [{"node": "shed", "resolvedBackend": "skulk-cpu"} | span]
    placement = skulk.Placement.from_json(json.dumps(data))
    expected = skulk.Model.load(MIXTRAL, threads=1).generate(PROMPT, max_tokens=8).text()
    with serve(MIXTRAL) as server:
        there = placement.with_address("shed", server.address)
        assert skulk.Placement.from_json(there.to_json()).addresses == {"shed": server.address}
        for model in (
            skulk.Model.load(MIXTRAL, threads=1, placement=there),
            skulk.Model.load(MIXTRAL, threads=1, placement=placement, addresses={"shed": server.address}),
        ):
            assert model.generate(PROMPT, max_tokens=8).text() == expected
        with pytest.raises(skulk.PlacementInvalidError):
            skulk.Model.load(MIXTRAL, placement=there, ffn_at=[server.address])
    with pytest.raises(skulk.PlacementInvalidError, match="shed"):
        skulk.Model.load(MIXTRAL, placement=placement)
