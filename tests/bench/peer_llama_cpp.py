"""Runs one prompt through llama.cpp and prints what `generate --json` prints last.

Spans are skulk's: load is model plus context, vocabulary included; prefill is the prompt's forward
calls; decode is everything from the first token to the last. Memory is the process' peak less what
the Python interpreter had taken before the model was opened.
"""

import argparse
import ctypes
import json
import logging
import time

import llama_cpp as llama
import numpy as np


def peak_rss() -> int:
    # Not getrusage: its peak includes that of the process which started this one.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-ids", required=True, help="comma-separated token ids")
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--pure-map", action="store_true", help="use weights as mapped; no repacked copies")
    args = parser.parse_args()
    prompt_ids = [int(i) for i in args.prompt_ids.split(",")]
    logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
    interpreter = peak_rss()

    started = time.perf_counter()
    llama.llama_backend_init()
    model_params = llama.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.load_mode = llama.LLAMA_LOAD_MODE_MMAP
    model_params.use_extra_bufts = not args.pure_map
    model = llama.llama_model_load_from_file(args.model.encode(), model_params)
    params = llama.llama_context_default_params()
    params.n_ctx = args.context
    params.n_threads = params.n_threads_batch = args.threads
    params.swa_full = False  # as llama.cpp's own programs: sliding layers keep only their window
    context = llama.llama_init_from_model(model, params) if model else None
    if not context:
        raise SystemExit(f"llama.cpp cannot load {args.model}")
    n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    load = time.perf_counter() - started

    def forward(tokens: list[int]) -> None:
        array = (llama.llama_token * len(tokens))(*tokens)
        if llama.llama_decode(context, llama.llama_batch_get_one(array, len(tokens))) != 0:
            raise SystemExit("llama_decode failed")

    def greedy() -> int:
        logits = np.ctypeslib.as_array(
            ctypes.cast(llama.llama_get_logits_ith(context, -1), ctypes.POINTER(ctypes.c_float)), (n_vocab,)
        )
        return int(logits.argmax())

    started = time.perf_counter()
    for start in range(0, len(prompt_ids), params.n_batch):
        forward(prompt_ids[start : start + params.n_batch])
    # Calls may return before the computing is done; reading the logits waits for it.
    ids = [greedy()]
    prefill = time.perf_counter() - started

    started = time.perf_counter()
    while len(ids) < args.max_tokens:
        forward(ids[-1:])
        ids.append(greedy())
    decode = time.perf_counter() - started

    print(
        json.dumps(
            {
                "ids": ids,
                "prompt_ids": prompt_ids,
                "timings": {
                    "load_seconds": load,
                    "time_to_first_token_seconds": prefill,
                    "prefill_seconds": prefill,
                    "decode_seconds": decode,
                    "prefill_tokens_per_second": len(prompt_ids) / prefill,
                    "decode_tokens_per_second": (len(ids) - 1) / decode if len(ids) > 1 else 0.0,
                },
                "peak_rss_bytes": peak_rss() - interpreter,
                "interpreter_rss_bytes": interpreter,
            }
        )
    )


main()
