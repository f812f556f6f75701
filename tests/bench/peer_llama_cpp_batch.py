"""Decodes sequences together with llama.cpp; prints, by their number, the tokens that all decode a second.

Each sequence has a prompt of its own and is greedy. For each number there is a context with as many
sequences, each with keys and values of its own; time begins behind the prompts and first tokens.
"""

import argparse
import json
import logging
import time

import llama_cpp as llama
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--sessions", required=True, help="comma-separated numbers of sequences")
    parser.add_argument("--prompt", type=int, required=True, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)

    llama.llama_backend_init()
    model_params = llama.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.load_mode = llama.LLAMA_LOAD_MODE_MMAP
    model = llama.llama_model_load_from_file(args.model.encode(), model_params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {args.model}")
    print(json.dumps({n: decoded(model, int(n), args) for n in args.sessions.split(",")}))


def decoded(model: llama.llama_model_p, sequences: int, args: argparse.Namespace) -> float:
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.kv_unified = 1024 * sequences, sequences, False
    params.n_threads = params.n_threads_batch = args.threads
    params.swa_full = False  # as llama.cpp's own programs: sliding layers keep only their window
    context = llama.llama_init_from_model(model, params)
    if not context:
        raise SystemExit(f"llama.cpp makes no context for {sequences} sequences")
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    batch = llama.llama_batch_init(max(args.prompt, sequences), 0, 1)

    def put(row: int, token: int, position: int, sequence: int, wanted: bool) -> None:
        batch.token[row], batch.pos[row], batch.n_seq_id[row] = token, position, 1
        batch.seq_id[row][0], batch.logits[row] = sequence, wanted

    def forward(rows: int) -> None:
        batch.n_tokens = rows
        if llama.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")

    def greedy(row: int) -> int:
        logits = llama.llama_get_logits_ith(context, row)
        return int(np.ctypeslib.as_array(logits, shape=(n_vocab,)).argmax())

    last = []
    for sequence in range(sequences):
        for position in range(args.prompt):
            put(position, 1000 + 100 * sequence + position, position, sequence, position == args.prompt - 1)
        forward(args.prompt)
        last.append(greedy(args.prompt - 1))
    started = time.perf_counter()
    for step in range(args.tokens - 1):
        for sequence, token in enumerate(last):
            put(sequence, token, args.prompt + step, sequence, True)
        forward(sequences)
        last = [greedy(row) for row in range(sequences)]
    seconds = time.perf_counter() - started
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    return sequences * (args.tokens - 1) / seconds


main()
