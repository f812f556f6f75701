"""What may be asked for? Keyword arguments of functions and methods, as dictionaries.

Written by ``cargo run -p skulk-contract-generate`` from the library's own declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any, Literal, TypedDict

from ._contract import Inventory, ModelCard

__all__ = [
    "ChatOptions",
    "DescribeOptions",
    "EmbedOptions",
    "EmbeddingOptions",
    "ExtractOptions",
    "GenerateOptions",
    "LinkOptions",
    "LoadOptions",
    "NearestOptions",
    "PlacementOptions",
    "PlanOptions",
    "PriceOptions",
    "ProfileOptions",
    "RelationsOptions",
    "RenderOptions",
    "RingsOptions",
    "SelectOptions",
    "ServeOptions",
    "SliceOptions",
    "ToolOptions",
    "VerifyOptions",
    "WalkOptions",
]

Ranges = range | Iterable[range | tuple[int, int]]
"""A range, several, or pairs of the first number and the one behind the last."""
Tools = Iterable[Mapping[str, Any] | Callable[..., object] | tuple[Mapping[str, Any], Callable[..., object]]]
"""Tools of OpenAI's shape; functions, whose signatures and docstrings say what they are; pairs of both."""


class LoadOptions(TypedDict, total=False):
    """Options of loading a model.

    - ``stages``: Stages that the layers are split into evenly, on one engine; 1 by default.
    - ``engine``: That engine: ``cpu`` (the default), ``wgpu`` (the best GPU), one of those that devices name,
      ``candle-cpu``, ``candle-cuda`` or ``candle-metal``.
    - ``node``: The name that a placement has for this machine; ``local`` by default.
    - ``ffn_at``: Addresses of servers of feed-forward blocks and experts, as ``http://192.168.7.4:8080``,
      ``https://…``, ``unix:///path``, or in gRPC ``grpc://…`` and ``grpcs://…``: each is asked what it has,
      and computes that. Of what several have, those that are named later help where the first one fails.
    - ``addresses``: Addresses of nodes that a placement has experts on, by name, where the placement does not
      say.
    - ``peer_key``: The key that other nodes ask for.
    - ``peer_roots``: Certificates that other nodes' must lead to, in PEM; by default those of public authorities.
    - ``peer_identity``: What proves to other nodes who asks: a certificate and its private key, in PEM.
    - ``peer_wire``: How results cross: ``f32`` (the default) changes nothing, ``f16`` halves them, ``i8`` is for
      dense blocks.
    - ``peer_rows_q8k``: Sends rows to dense blocks as integers of 8 bits with scales (Q8_K), some 28 % of their
      bytes, which changes results. Only where the model's width is a multiple of 256.
    - ``peer_timeout``: Seconds that another node may take for what it is asked; 30 by default.
    - ``ffn_on_cpu``: Leaves feed-forward blocks and experts to the CPU where an engine would copy them to its
      device.
    - ``ffn_budget``: Bytes that are kept in memory at a time of feed-forward weights that are used where they are
      stored, with the same results; no limit by default.
    - ``ffn_top_features``: Features that are computed of each dense block, which changes results; by default all.
    - ``device_memory``: Bytes that ``wgpu`` may reserve on its device; by default what its driver gives.
    - ``threads``: Threads that compute on the CPU; all of the hardware's by default.
    - ``context``: Tokens that a session can hold: by default what a placement was planned for, else 4096 (of
      LongRoPE models at most the original context), and never more than the model has.
    - ``prefill_chunk``: Prompt tokens that pass through the layers together; 256 by default.
    - ``kv``: How keys and values are kept, never in more memory than a placement was planned with. By default as
      the plan was asked for. Where it was not: in ``f16``, but in ``bf16`` where all stages are on the CPU and
      ``precision`` is not ``exact``.
    - ``kv_values``: How values are kept, where that is otherwise than keys.
    - ``sessions``: Sessions that generate at the same time, in steps together: by default as many as a placement
      was planned for, else 16, and never more than that was planned for. Others wait for their turn; those whose
      reader does not read do not count.
    - ``kv_memory``: Bytes that keys and values of all sessions may take; by default what a placement was planned
      with, else what sessions need. What is left keeps conversations that rest, and the beginnings of prompts, so
      that they need not be computed again.
    - ``when_full``: What happens to a session when that memory is full: ``wait`` (the default) gives up what
      resting sessions hold, then waits until others have ended; ``evict`` does not wait but ends with
      ``memory.exhausted``; ``fail`` does so at once.
    - ``precision``: How products are rounded: ``fast`` (the default) rounds activations to 8 bits where weights
      are quantised, ``exact`` multiplies what that leaves over, too, and ``bf16`` rounds to BF16 where weights are
      of that type.
    - ``memory``: Where weights lie: ``mapped``, as the file is; ``resident``, read once; ``auto`` (the default),
      as free memory suggests.
    - ``screen_head``: Keeps a compact copy of the head, so that most of it need not be read, with the same
      results.
    - ``card``: The model's card, which says how it is spoken to in conversations; by default what its checkpoint
      says.
    - ``chat_template``: The chat template, instead of those of the checkpoint.
    - ``draft_model``: The path of what drafts tokens: a smaller model with the same vocabulary, this model's head
      for tokens ahead (MTP) in a file of its own, its assistant (Gemma 4), or an EAGLE-3 head of it. It runs whole
      on the engine of the last stage, with its options, a budget among them; keys and values of its own, which an
      assistant has none of, are for as many sessions, beside ``kv_memory``. A plan that counts one needs one here,
      whose weights, keys and values take no more memory; what no plan counts comes on top.
    - ``mtp``: Whether a head for tokens ahead (MTP) that the checkpoint has drafts. It takes the memory of a
      layer more, and of that layer's keys and values for as many sessions: by default it drafts as it was planned,
      and without a plan where no ``draft_model`` does and where it can be loaded, as the model's memory tells.
      ``false`` leaves out what a plan counts, too.
    """

    stages: int | None
    engine: str | None
    node: str | None
    ffn_at: Iterable[str] | None
    addresses: Mapping[str, str] | None
    peer_key: str | None
    peer_roots: str | None
    peer_identity: str | None
    peer_wire: Literal["f32", "f16", "i8"] | None
    peer_rows_q8k: bool | None
    peer_timeout: float | None
    ffn_on_cpu: bool | None
    ffn_budget: int | None
    ffn_top_features: int | None
    device_memory: int | None
    threads: int | None
    context: int | None
    prefill_chunk: int | None
    kv: Literal["f16", "bf16", "f32", "q8_0", "q4_0"] | None
    kv_values: Literal["f16", "bf16", "f32", "q8_0", "q4_0"] | None
    sessions: int | None
    kv_memory: int | None
    when_full: Literal["wait", "evict", "fail"] | None
    precision: Literal["fast", "exact", "bf16"] | None
    memory: Literal["auto", "mapped", "resident"] | None
    screen_head: bool | None
    card: ModelCard | None
    chat_template: str | None
    draft_model: str | PathLike[str] | None
    mtp: bool | None


class ServeOptions(TypedDict, total=False):
    """Options of serving feed-forward blocks and experts to other machines.

    - ``listen``: Where to listen: ``http://host:port``, ``https://…``, which needs ``identity``, or
      ``unix:///path``. By default ``http://127.0.0.1:0``, a free port that only this machine reaches.
    - ``layers``: The layers whose blocks are served; by default all.
    - ``experts``: The experts that are served of each layer that has some; by default all.
    - ``key``: The key that clients must know. Where other machines reach the server, it or ``clients`` must be
      given.
    - ``identity``: What the server shows to clients of ``https``: a certificate and its private key, in PEM.
    - ``clients``: Certificates that clients' must lead to, in PEM; by default they need none.
    - ``ffn_budget``: Bytes of weights that are kept in memory at a time; no limit by default.
    - ``threads``: Threads that compute; all of the hardware's by default.
    - ``precision``: How products are rounded: ``fast`` (the default), ``exact`` or ``bf16``. Clients get the
      numbers of a model that is loaded with the same.
    - ``memory``: Where weights lie: ``mapped``, ``resident`` or ``auto`` (the default).
    - ``max_rows``: Rows that are computed together at most, of all clients; 256 by default.
    - ``queue``: Requests that may wait; who comes then is told to come again. 256 by default.
    - ``max_connections``: Connections at a time; 256 by default.
    - ``max_body``: Bytes of a request at most; 64 MiB by default.
    """

    listen: str | None
    layers: range | None
    experts: range | None
    key: str | None
    identity: str | None
    clients: str | None
    ffn_budget: int | None
    threads: int | None
    precision: Literal["fast", "exact", "bf16"] | None
    memory: Literal["auto", "mapped", "resident"] | None
    max_rows: int | None
    queue: int | None
    max_connections: int | None
    max_body: int | None


class LinkOptions(TypedDict, total=False):
    """Options of measuring a link.

    - ``key``: The key that the server asks for.
    - ``roots``: Certificates that the server's must lead to, in PEM; by default those of public authorities.
    - ``identity``: What proves to the server who asks: a certificate and its private key, in PEM.
    - ``timeout``: Seconds that measuring may take; 30 by default.
    """

    key: str | None
    roots: str | None
    identity: str | None
    timeout: float | None


class GenerateOptions(TypedDict, total=False):
    """Options of one generation.

    - ``max_tokens``: Tokens to generate at most; by default until the model ends or the context is full.
    - ``temperature``: 0, the default, takes the likeliest token; more makes others likelier.
    - ``top_k``: Draws from so many likeliest tokens; by default all.
    - ``top_p``: Draws from the likeliest tokens that have this probability together; 1 by default.
    - ``min_p``: Leaves out tokens that are less likely than this part of the likeliest; 0 by default.
    - ``repetition_penalty``: Divides logits of tokens that were there already; 1, the default, does not.
    - ``presence_penalty``: Is taken from logits of tokens that were there already; 0 by default.
    - ``frequency_penalty``: Is taken from a token's logit for each time it was there; 0 by default.
    - ``penalty_window``: Tokens that penalties look back at; 64 by default.
    - ``logit_bias``: What is added to logits, by token id.
    - ``seed``: The same seed draws the same tokens; 0 by default.
    - ``speculate``: Whether tokens are computed ahead: ``auto`` (the default), where that pays, by times and
      acceptances that are measured meanwhile; ``off``. What followed when the text read the same is proposed
      (``ngram``: that alone), or what a draft model says (``draft_model``: that alone), and kept while it is what is
      chosen: on the CPU the text is the same in every bit.
    - ``draft_tokens``: Tokens that are computed ahead in every step, as far as they are proposed and the step has
      rows for them, whether or not that pays, 1 to 15; by default as many as pay.
    - ``draft_tree``: Whether another guess at the next token is computed beside the first one, in a copy of the
      sequence that shares its pages, for two rows of a step, where the step has them: a small tree. By default where
      that pays, and never with ``draft_tokens``. Models with recurrent layers have none.
    - ``draft_texts``: Texts that the text may quote, beside its own prompt: what followed there is proposed, too.
      At most 262,144 tokens and 4 MiB.
    - ``stop``: Texts that end the generation; they are not part of its text.
    - ``json_schema``: A JSON Schema that the text keeps to. Of this, ``regex``, ``grammar`` and
      ``response_format`` one may be given.
    - ``regex``: A regular expression that matches the text as a whole.
    - ``grammar``: A grammar in the syntax of Lark, of whose language the text is.
    - ``response_format``: What the text is, as OpenAI's chat API and the AI SDK say it: ``{"type":
      "json_object"}``, or with ``json_schema``.
    - ``ignore_eos``: Goes on past end-of-sequence tokens.
    - ``priority``: Sessions of a higher one begin first, and their prompts are computed first; 0 by default.
    - ``append``: The prompt follows what the session holds; by default it is everything so far.
    - ``logprobs``: Reports each token's log-probability, and those of so many likeliest, 0 to 64.
    """

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    penalty_window: int | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    speculate: Literal["auto", "ngram", "draft_model", "off"] | None
    draft_tokens: int | None
    draft_tree: bool | None
    draft_texts: Iterable[str] | None
    stop: Iterable[str] | None
    json_schema: Mapping[str, Any] | None
    regex: str | None
    grammar: str | None
    response_format: Mapping[str, Any] | None
    ignore_eos: bool | None
    priority: int | None
    append: bool | None
    logprobs: int | None


class RenderOptions(TypedDict, total=False):
    """Options of a prompt.

    - ``tools``: What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments.
    - ``reasoning``: How much the model is to reason; by default as much as it likes. What it cannot do is
      refused. ``on``: Reasoning, as much as the model likes; ``off``: No reasoning.
    - ``documents``: Documents to answer from, for templates that know them.
    - ``variables``: Further variables of the template, by name.
    - ``template``: Which of the model's templates; by default the one for tools where tools are given, else the
      usual one.
    - ``now``: The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC.
    - ``trust_messages``: Texts of special tokens in messages, tools and documents become these tokens: whoever
      writes them can write turns.
    """

    tools: Tools | None
    reasoning: bool | Literal["on", "off", "none", "minimal", "low", "medium", "high", "xhigh"] | None
    documents: Iterable[Mapping[str, Any]] | None
    variables: Mapping[str, Any] | None
    template: str | None
    now: int | None
    trust_messages: bool | None


class ChatOptions(TypedDict, total=False):
    """Options of an answer.

    - ``tools``: What the model may call: functions of OpenAI's shape, each with a JSON Schema of its arguments.
    - ``reasoning``: How much the model is to reason; by default as much as it likes. What it cannot do is
      refused. ``on``: Reasoning, as much as the model likes; ``off``: No reasoning.
    - ``documents``: Documents to answer from, for templates that know them.
    - ``variables``: Further variables of the template, by name.
    - ``template``: Which of the model's templates; by default the one for tools where tools are given, else the
      usual one.
    - ``now``: The time, for templates that tell it, in seconds since 1970; by default the system's clock, in UTC.
    - ``trust_messages``: Texts of special tokens in messages, tools and documents become these tokens: whoever
      writes them can write turns.
    - ``max_tokens``: Tokens to generate at most; by default until the model ends or the context is full.
    - ``temperature``: 0, the default, takes the likeliest token; more makes others likelier.
    - ``top_k``: Draws from so many likeliest tokens; by default all.
    - ``top_p``: Draws from the likeliest tokens that have this probability together; 1 by default.
    - ``min_p``: Leaves out tokens that are less likely than this part of the likeliest; 0 by default.
    - ``repetition_penalty``: Divides logits of tokens that were there already; 1, the default, does not.
    - ``presence_penalty``: Is taken from logits of tokens that were there already; 0 by default.
    - ``frequency_penalty``: Is taken from a token's logit for each time it was there; 0 by default.
    - ``penalty_window``: Tokens that penalties look back at; 64 by default.
    - ``logit_bias``: What is added to logits, by token id.
    - ``seed``: The same seed draws the same tokens; 0 by default.
    - ``speculate``: Whether tokens are computed ahead: ``auto`` (the default), where that pays, by times and
      acceptances that are measured meanwhile; ``off``. What followed when the text read the same is proposed
      (``ngram``: that alone), or what a draft model says (``draft_model``: that alone), and kept while it is what is
      chosen: on the CPU the text is the same in every bit.
    - ``draft_tokens``: Tokens that are computed ahead in every step, as far as they are proposed and the step has
      rows for them, whether or not that pays, 1 to 15; by default as many as pay.
    - ``draft_tree``: Whether another guess at the next token is computed beside the first one, in a copy of the
      sequence that shares its pages, for two rows of a step, where the step has them: a small tree. By default where
      that pays, and never with ``draft_tokens``. Models with recurrent layers have none.
    - ``draft_texts``: Texts that the text may quote, beside its own prompt: what followed there is proposed, too.
      At most 262,144 tokens and 4 MiB.
    - ``stop``: Texts that end the generation; they are not part of its text.
    - ``json_schema``: A JSON Schema that the text keeps to. Of this, ``regex``, ``grammar`` and
      ``response_format`` one may be given.
    - ``regex``: A regular expression that matches the text as a whole.
    - ``grammar``: A grammar in the syntax of Lark, of whose language the text is.
    - ``response_format``: What the text is, as OpenAI's chat API and the AI SDK say it: ``{"type":
      "json_object"}``, or with ``json_schema``.
    - ``ignore_eos``: Goes on past end-of-sequence tokens.
    - ``priority``: Sessions of a higher one begin first, and their prompts are computed first; 0 by default.
    - ``reasoning_budget``: Tokens that the model may reason at most; then its reasoning is ended, and it goes on
      with the answer.
    """

    tools: Tools | None
    reasoning: bool | Literal["on", "off", "none", "minimal", "low", "medium", "high", "xhigh"] | None
    documents: Iterable[Mapping[str, Any]] | None
    variables: Mapping[str, Any] | None
    template: str | None
    now: int | None
    trust_messages: bool | None
    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    penalty_window: int | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    speculate: Literal["auto", "ngram", "draft_model", "off"] | None
    draft_tokens: int | None
    draft_tree: bool | None
    draft_texts: Iterable[str] | None
    stop: Iterable[str] | None
    json_schema: Mapping[str, Any] | None
    regex: str | None
    grammar: str | None
    response_format: Mapping[str, Any] | None
    ignore_eos: bool | None
    priority: int | None
    reasoning_budget: int | None


class ToolOptions(ChatOptions, total=False):
    """Options of a conversation in which the model calls functions.

    - ``max_rounds``: Answers at most, 8 by default; calls of the last one get no results.
    - ``on_tool_failure``: What happens where a function fails; ``tell`` by default. ``tell``: The model is told:
      the result is ``error: `` and what the error displays; ``end``: The conversation ends with ``tool.failed``.
    """

    max_rounds: int | None
    on_tool_failure: Literal["tell", "end"] | None


class EmbeddingOptions(TypedDict, total=False):
    """Options of loading an embedding model.

    - ``threads``: Threads that compute; all of the hardware's by default. Vectors do not depend on it.
    """

    threads: int | None


class EmbedOptions(TypedDict, total=False):
    """Options of making vectors of texts.

    - ``truncate``: Of texts that are too long only the beginning counts (the default); without it they are an
      error.
    """

    truncate: bool | None


class PlanOptions(TypedDict, total=False):
    """Options of a plan.

    - ``sharding``: How the model is split; ``pipeline`` by default. ``pipeline``: By layers: each node has some;
      ``tensor``: By tensors: each node has a part of every layer.
    - ``transport``: How nodes talk; ``direct`` by default. ``direct``: The coordinator, which has the first
      stage, talks to each of the others: this library's own way; ``mlx_ring``: In a ring of sockets, as MLX does;
      ``mlx_jaccl``: Each with each by RDMA, as MLX does.
    - ``min_nodes``: Nodes to use at least; 1 by default.
    - ``required_nodes``: Nodes that must be used.
    - ``excluded_nodes``: Nodes that must not.
    - ``coordinator``: The node that has the conversation and the first stage; by default the planner chooses.
      Only for ``direct``.
    - ``context_tokens``: Tokens for which keys and values are reserved, of each session; 8192 by default. With
      the transport ``direct`` no more than the model was trained for and its card allows.
    - ``prompt_tokens``: Tokens of the prompt whose time is estimated; 512 by default, and no more than the
      context has.
    - ``sessions``: Sessions that generate at once, each of which has its keys and values; 1 by default. Only for
      ``direct``.
    - ``kv``: How keys and values are kept, and loading keeps them so; MLX has ``f16`` alone. By default in two
      bytes an element, of which loading chooses the type.
    - ``kv_values``: How values are kept, where that is otherwise than keys.
    - ``strictness``: How careful it is with memory: ``safe`` (the default); ``relaxed``, without margins;
      ``force`` refuses nothing for its sake, and says what is over.
    - ``from_disk``: Feed-forward blocks and experts that fit in no memory may stay on the coordinator's disk, and
      be read when they are needed. Only for ``direct``.
    - ``replicas``: Owners that each block and expert on another node than its layer's attention gets beside its
      first, where there is room on further nodes; 0 by default. The report warns where some have fewer.
    - ``inventory``: What each part of the model weighs; by default a checkpoint's tensors are counted, and a
      card's size is divided.
    - ``mtp``: The head for tokens ahead (MTP) that the checkpoint has drafts: memory is planned for it, and the
      model loads it. Only for ``direct``.
    - ``draft_model``: What drafts instead: the inventory of a ``draft_model`` of loading. Only for ``direct``.
    - ``fixed``: What is fixed by hand, by rules as those of a placement by hand with places on the cluster's
      nodes, as ``wgpu@shed``; the rest is planned, blocks of layers that rules name among it. Only for ``direct``.
    - ``rings``: Rings to consider, and no others, as nodes by rank; not for ``direct``.
    - ``port``: The port on which nodes listen; 50000 by default.
    """

    sharding: Literal["pipeline", "tensor"] | None
    transport: Literal["direct", "mlx_ring", "mlx_jaccl"] | None
    min_nodes: int | None
    required_nodes: Iterable[str] | None
    excluded_nodes: Iterable[str] | None
    coordinator: str | None
    context_tokens: int | None
    prompt_tokens: int | None
    sessions: int | None
    kv: Literal["f16", "bf16", "f32", "q8_0", "q4_0"] | None
    kv_values: Literal["f16", "bf16", "f32", "q8_0", "q4_0"] | None
    strictness: Literal["safe", "relaxed", "force"] | None
    from_disk: bool | None
    replicas: int | None
    inventory: Inventory | None
    mtp: bool | None
    draft_model: Inventory | None
    fixed: PlacementOptions | None
    rings: Iterable[Iterable[str]] | None
    port: int | None


class PriceOptions(TypedDict, total=False):
    """Options of a price.

    - ``context_tokens``: Tokens of each session's context, in the middle of which a token is priced; 8192 by
      default, and no more than the model was trained for and its card allows.
    - ``prompt_tokens``: Tokens of the prompt that is priced; 512 by default, and no more than the context has.
    - ``sessions``: Sessions that generate at once; 1 by default.
    - ``kv``: How keys and values are kept; by default in two bytes an element.
    - ``kv_values``: How values are kept, where that is otherwise than keys.
    - ``inventory``: What each part of the model weighs; by default a checkpoint's tensors are counted, and a
      card's size is divided.
    - ``mtp``: The head for tokens ahead (MTP) that the checkpoint has drafts.
    - ``draft_model``: What drafts instead: the inventory of a ``draft_model`` of loading.
    """

    context_tokens: int | None
    prompt_tokens: int | None
    sessions: int | None
    kv: Literal["f16", "bf16", "f32", "q8_0", "q4_0"] | None
    kv_values: Literal["f16", "bf16", "f32", "q8_0", "q4_0"] | None
    inventory: Inventory | None
    mtp: bool | None
    draft_model: Inventory | None


class PlacementOptions(TypedDict, total=False):
    """A placement by hand. An engine is named as ``wgpu``, or with its node as ``cpu@shed``. What two options place,
    they must place alike; feed-forward blocks and experts that none names stay with their layer's attention.

    - ``engine``: The engine of layers that ``layers`` does not name.
    - ``layers``: Layers as stages, as in ``0..20=wgpu``.
    - ``experts``: Feed-forward blocks of layers with all their experts, as in ``4..20=cpu``, or some experts of
      each, as in ``4..20:0..64=cpu@shed``. A dense block is expert 0.
    - ``override_tensors``: Blocks and experts by regular expressions over the checkpoint's names of tensors, as
      llama.cpp's option of this name takes them: ``blk\\.(1[0-9])\\.ffn_.*_exps\\.=CPU``. Each must match whole
      blocks or experts, and nothing of attention.
    """

    engine: str | None
    layers: Iterable[str] | None
    experts: Iterable[str] | None
    override_tensors: Iterable[str] | None


class RingsOptions(TypedDict, total=False):
    """Which rings are asked for.

    - ``sharding``: How the model is split; ``pipeline`` by default. ``pipeline``: By layers: each node has some;
      ``tensor``: By tensors: each node has a part of every layer.
    - ``transport``: How nodes talk: one of MLX's ways; ``mlx_ring`` by default. ``direct``: The coordinator,
      which has the first stage, talks to each of the others: this library's own way; ``mlx_ring``: In a ring of
      sockets, as MLX does; ``mlx_jaccl``: Each with each by RDMA, as MLX does.
    - ``min_nodes``: Nodes to use at least; 1 by default.
    """

    sharding: Literal["pipeline", "tensor"] | None
    transport: Literal["direct", "mlx_ring", "mlx_jaccl"] | None
    min_nodes: int | None


class ProfileOptions(TypedDict, total=False):
    """What else than its card is known of a model.

    - ``tokenizer_tools``: Its tokenizer's chat template knows tools.
    - ``tokenizer_thinking``: Its tokenizer has markers for reasoning.
    - ``has_messages``: The request consists of chat messages. Left out, with the next: nothing is known of it
      yet.
    - ``has_tools``: The request offers tools.
    """

    tokenizer_tools: bool | None
    tokenizer_thinking: bool | None
    has_messages: bool | None
    has_tools: bool | None


class ExtractOptions(TypedDict, total=False):
    """Options of an extraction.

    - ``level``: How much of the model; ``all`` by default. ``browse``: Gate vectors, embeddings, and what
      features mean; ``attention``: Attention and norms too; ``inference``: All that generation takes; ``all``:
      Everything.
    - ``storage``: How weights are kept: ``f32``, ``f16`` (the default) or ``q4k``, with which all that generation
      takes is written.
    - ``down_q4k``: Down projections as Q4_K rather than Q6_K. Only with ``q4k``.
    - ``feature_major_down``: Down projections once more, transposed. Only with ``q4k``.
    - ``gate_vectors``: Gate vectors as floats (the default). With ``q4k`` quantised gate projections can stand
      for them.
    - ``feature_tokens``: Tokens that are kept for each feature, 10 by default; 0: none.
    - ``name``: The model's name in the index; by default its file's or folder's.
    - ``threads``: Threads that compute; all of the hardware's by default.
    - ``restart``: Begins anew where an extraction was interrupted; by default it continues.
    """

    level: Literal["browse", "attention", "inference", "all"] | None
    storage: Literal["f32", "f16", "q4k"] | None
    down_q4k: bool | None
    feature_major_down: bool | None
    gate_vectors: bool | None
    feature_tokens: int | None
    name: str | None
    threads: int | None
    restart: bool | None


class SliceOptions(TypedDict, total=False):
    """Options of a slice.

    - ``preset``: The role that it is for; ``full`` by default.
    - ``parts``: Parts to take instead of those of the preset.
    - ``layers``: Layers whose weights it holds; by default all.
    - ``experts``: Experts of each layer whose weights it holds; by default all.
    - ``copy``: How files that are taken whole come into it; ``auto`` by default. ``auto``: As links, else
      copy-on-write, else as copies. A linked file is the same in both folders, changes included; ``copy``: As files
      of their own, copy-on-write where the file system can.
    - ``threads``: Files that are worked on at a time; all of the hardware's threads by default.
    """

    preset: Literal["full", "client", "attn", "embed", "server", "browse", "router", "expert-server"] | None
    parts: Iterable[
        Literal["index", "embed", "norms", "attn", "gate", "down_meta", "ffn", "down_features", "expert_layers", "lm_head", "router", "ple", "tokenizer", "manifest", "labels", "knn", "readme"
    ]] | None
    layers: Ranges | None
    experts: Ranges | None
    copy: Literal["auto", "copy"] | None
    threads: int | None


class VerifyOptions(TypedDict, total=False):
    """Options of a verification.

    - ``hashes``: Compares hashes (the default), which reads all files that have any.
    - ``values``: Looks for numbers that are infinite or none, which reads all weights.
    - ``threads``: Pieces of files that are looked at at a time; all of the hardware's threads by default.
    """

    hashes: bool | None
    values: bool | None
    threads: int | None


class NearestOptions(TypedDict, total=False):
    """Options of a search for the features nearest to a query.

    - ``k``: Features of each layer; 10 by default.
    - ``layers``: The layers; by default all that have features.
    """

    k: int | None
    layers: Iterable[int] | None


class WalkOptions(TypedDict, total=False):
    """Options of a walk through the features that a prompt wakes.

    - ``top``: Features of each layer; 5 by default.
    - ``layers``: The layers, in the order in which they are walked; by default all that have features.
    """

    top: int | None
    layers: Iterable[int] | None


class DescribeOptions(TypedDict, total=False):
    """Options of a description.

    - ``band``: Layers that are searched; those of facts (``knowledge``) by default. ``all``: Every layer;
      ``syntax``: Those of syntax; ``knowledge``: Those of facts; ``output``: Those that form the output.
    - ``limit``: Features that are looked at in each layer, and edges at most; 20 by default.
    - ``min_score``: Gate scores below this do not count; 5 by default.
    """

    band: Literal["all", "syntax", "knowledge", "output"] | None
    limit: int | None
    min_score: float | None


class SelectOptions(TypedDict, total=False):
    """Options of a selection of features.

    - ``entity``: Part of the token that a feature writes most, regardless of case.
    - ``relation``: Part of the label that a probe confirmed, regardless of case.
    - ``layer``: The layer; by default all.
    - ``min_score``: Scores below this do not count.
    - ``order``: What the list is ordered by; ``score`` by default. ``score``: How much a feature writes its
      token: ``c_score``; ``layer``: The layer.
    - ``ascending``: The smallest first.
    - ``limit``: Features at most; 20 by default.
    """

    entity: str | None
    relation: str | None
    layer: int | None
    min_score: float | None
    order: Literal["score", "layer"] | None
    ascending: bool | None
    limit: int | None


class RelationsOptions(TypedDict, total=False):
    """Options of a list of relations.

    - ``limit``: Words at most; 50 by default.
    - ``min_score``: Features that write their token less than this do not count; 0.2 by default.
    """

    limit: int | None
    min_score: float | None
