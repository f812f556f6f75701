"""Do foreign clients and servers of gRPC understand what this library says as LARQL's service of experts?

Google's gRPC and Protocol Buffers are on the other side, with the messages of `larql.expert.v1`.
"""

from __future__ import annotations

import json
import queue
import struct
import urllib.request
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import skulk
from conftest import FIXTURES, PROMPT

MIXTRAL = FIXTURES / "mixtral"
HIDDEN = json.loads((MIXTRAL / "config.json").read_text())["hidden_size"]
SERVICE = "/larql.expert.v1.ExpertService/"


def messages() -> dict[str, Any]:
    kinds = descriptor_pb2.FieldDescriptorProto
    number, row, real = kinds.TYPE_UINT32, kinds.TYPE_BYTES, kinds.TYPE_FLOAT
    declared: dict[str, list[tuple[str, Any, bool]]] = {
        "ExpertBatchItem": [("layer", number, False), ("expert_id", number, False), ("residual", row, False)],
        "ExpertBatchResult": [("layer", number, False), ("expert_id", number, False), ("output", row, False)],
        "ExpertBatchRequest": [("items", "ExpertBatchItem", True)],
        "ExpertBatchResponse": [("results", "ExpertBatchResult", True), ("latency_ms", real, False)],
        "ExpertLayerInput": [
            ("layer", number, False),
            ("expert_ids", number, True),
            ("expert_weights", real, True),
            ("residual", row, False),
            ("post_experts_norm", row, False),
            ("norm_offset", real, False),
            ("eps", real, False),
        ],
        "ExpertLayerOutput": [("layer", number, False), ("h2", row, False), ("compute_ms", real, False)],
    }
    file = descriptor_pb2.FileDescriptorProto(name="expert.proto", package="larql.expert.v1", syntax="proto3")
    for name, fields in declared.items():
        message = file.message_type.add(name=name)
        for at, (field, kind, repeated) in enumerate(fields, 1):
            added = message.field.add(name=field, number=at)
            added.label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if isinstance(kind, str):
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".larql.expert.v1.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"larql.expert.v1.{name}")) for name in declared}


M = messages()
TYPES = {"ExpertBatch": ("ExpertBatchRequest", "ExpertBatchResponse"), "ExpertStream": ("ExpertLayerInput", "ExpertLayerOutput")}


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((n, HIDDEN), dtype=np.float32)


def channel(server: skulk.Server) -> grpc.Channel:
    return grpc.insecure_channel(server.address.removeprefix("http://"))


def call(over: grpc.Channel, name: str) -> Any:
    asked, answered = TYPES[name]
    kind = over.unary_unary if name == "ExpertBatch" else over.stream_stream
    return kind(SERVICE + name, request_serializer=M[asked].SerializeToString, response_deserializer=M[answered].FromString)


def batch(*items: tuple[int, int, np.ndarray]) -> Any:
    return M["ExpertBatchRequest"](
        items=[M["ExpertBatchItem"](layer=layer, expert_id=at, residual=row.tobytes()) for layer, at, row in items]
    )


def over_http(server: skulk.Server, items: list[tuple[int, int, np.ndarray]]) -> list[np.ndarray]:
    body = struct.pack("<2I", len(items), HIDDEN)
    body += b"".join(struct.pack("<2I", layer, at) + row.tobytes() for layer, at, row in items)
    request = urllib.request.Request(
        f"{server.address}/v1/expert/batch", body, {"content-type": "application/x-larql-expert"}
    )
    with urllib.request.urlopen(request) as reply:
        values = np.frombuffer(reply.read()[12:], np.float32).reshape(len(items), HIDDEN + 2)
    return [row[2:] for row in values]


@pytest.fixture(scope="module")
def server() -> Iterator[skulk.Server]:
    with skulk.serve(MIXTRAL, threads=1) as server:
        yield server


def test_single_experts_are_those_of_http(server: skulk.Server) -> None:
    given = rows(5)
    items = [(layer, expert, given[at]) for at, (layer, expert) in enumerate([(0, 0), (0, 3), (1, 3), (0, 0), (1, 7)])]
    with channel(server) as over:
        reply = call(over, "ExpertBatch")(batch(*items))
    assert [(result.layer, result.expert_id) for result in reply.results] == [item[:2] for item in items]
    for result, expected in zip(reply.results, over_http(server, items), strict=True):
        assert (np.frombuffer(result.output, np.float32) == expected).all()


def layer_input(row: np.ndarray, **more: Any) -> Any:
    return M["ExpertLayerInput"](layer=1, expert_ids=[5, 0], expert_weights=[0.75, 0.25], residual=row.tobytes(), **more)


def test_each_row_of_a_stream_is_answered_before_the_next_is_sent(server: skulk.Server) -> None:
    given: queue.Queue[Any] = queue.Queue()
    with channel(server) as over:
        replies = call(over, "ExpertStream")(iter(given.get, None), timeout=60)
        for row in rows(4):
            given.put(layer_input(row))
            reply = next(replies)
            apart = over_http(server, [(1, 5, row), (1, 0, row)])
            expected = np.float32(0.75) * apart[0] + np.float32(0.25) * apart[1]
            assert reply.layer == 1
            np.testing.assert_allclose(np.frombuffer(reply.h2, np.float32), expected, rtol=1e-5, atol=1e-6)
        given.put(None)
        assert list(replies) == [] and replies.code() == grpc.StatusCode.OK


def test_sums_are_normed_where_the_client_says_so(server: skulk.Server) -> None:
    [row], weight = rows(1), rows(2)[1]
    normed = layer_input(row, post_experts_norm=weight.tobytes(), norm_offset=1.0, eps=1e-6)
    with channel(server) as over:
        plain, found = (np.frombuffer(reply.h2, np.float32) for reply in call(over, "ExpertStream")(iter([layer_input(row), normed])))
    wide = plain.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean() + 1e-6) * (weight.astype(np.float64) + 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_mistakes_have_the_codes_of_grpc(server: skulk.Server) -> None:
    [row] = rows(1)
    with channel(server) as over:
        unary, stream = call(over, "ExpertBatch"), call(over, "ExpertStream")
        for wrong, words in [
            (batch((0, 8, row)), "expert 8 out of range"),
            (batch((9, 0, row)), "layer 9 out of range"),
            (batch((0, 0, row[1:])), "values"),
            (batch((0, 0, np.full(HIDDEN, np.nan, np.float32))), "finite"),
            (batch(), "items"),
        ]:
            with pytest.raises(grpc.RpcError) as raised:
                unary(wrong)
            assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT and words in raised.value.details()
        replies = stream(iter([layer_input(row), layer_input(row[1:])]))
        next(replies)
        with pytest.raises(grpc.RpcError) as raised:
            next(replies)
        assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "residual" in raised.value.details()
        # Without compression, which was not offered.
        with pytest.raises(grpc.RpcError) as raised:
            unary(batch((0, 0, np.zeros(HIDDEN, np.float32))), compression=grpc.Compression.Gzip)
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
        missing = over.unary_unary(SERVICE + "Nothing")
        with pytest.raises(grpc.RpcError) as raised:
            missing(b"")
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_keys_sizes_and_the_end() -> None:
    [row] = rows(1)
    with skulk.serve(MIXTRAL, threads=1, key="right", max_body=4096) as server, channel(server) as over:
        unary, key = call(over, "ExpertBatch"), [("authorization", "Bearer right")]
        with pytest.raises(grpc.RpcError) as raised:
            unary(batch((0, 0, row)))
        assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert len(unary(batch((0, 0, row)), metadata=key).results) == 1
        with pytest.raises(grpc.RpcError) as raised:
            unary(batch(*[(0, 0, row)] * 100), metadata=key)
        assert raised.value.code() == grpc.StatusCode.OUT_OF_RANGE
        given: queue.Queue[Any] = queue.Queue()
        replies = call(over, "ExpertStream")(iter(given.get, None), metadata=key, timeout=60)
        given.put(layer_input(row))
        next(replies)
        # Who waits for more is told that there is none.
        server.stop(30)
        with pytest.raises(grpc.RpcError) as raised:
            next(replies)
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        given.put(None)


class Foreign:
    """A server of Google's gRPC that has experts computed by another one, and knows nothing but the service."""

    def __init__(self, to: grpc.Channel) -> None:
        self.to, self.calls, self.failing = to, 0, 0

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        name = details.method.removeprefix(SERVICE)
        if name not in TYPES:
            return None
        asked, answered = TYPES[name]
        read, write = M[asked].FromString, M[answered].SerializeToString
        if name == "ExpertBatch":
            return grpc.unary_unary_rpc_method_handler(self.counted(call(self.to, name)), read, write)
        return grpc.stream_stream_rpc_method_handler(self.counted(call(self.to, name)), read, write)

    def counted(self, to: Any) -> Any:
        def forward(request: Any, context: grpc.ServicerContext) -> Any:
            self.calls += 1
            if self.failing:
                self.failing -= 1
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much – 100 %")
            return to(request)

        return forward


def test_models_ask_foreign_servers(server: skulk.Server) -> None:
    alone = skulk.Model.load(MIXTRAL, threads=1).generate(PROMPT, max_tokens=24).output().ids
    with channel(server) as to, channel(server) as also:
        handlers = [Foreign(to), Foreign(also)]
        servers = [grpc.server(futures.ThreadPoolExecutor(4)) for _ in handlers]
        for foreign, handler in zip(servers, handlers, strict=True):
            foreign.add_generic_rpc_handlers([handler])
        ports = [foreign.add_insecure_port("127.0.0.1:0") for foreign in servers]
        for foreign in servers:
            foreign.start()
        # One has all: sums. Busy ones are asked again.
        model = skulk.Model.load(MIXTRAL, threads=1, ffn_at=[f"grpc://127.0.0.1:{ports[0]}"])
        handlers[0].failing = 3
        assert model.generate(PROMPT, max_tokens=24).output().ids == alone
        assert handlers[0].calls > 24 and handlers[0].failing == 0
        model.close()
        # One that is gone has a replica.
        with skulk.Model.load(MIXTRAL, threads=1, ffn_at=[f"grpc://127.0.0.1:{port}" for port in ports]) as model:
            assert model.generate(PROMPT, max_tokens=4).output().ids == alone[:4]
            servers[0].stop(0).wait(60)
            assert model.generate(PROMPT, max_tokens=24).output().ids == alone
        assert handlers[1].calls > 24
        servers[1].stop(0).wait(60)
