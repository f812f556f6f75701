"""Generates text with skulk: five lines first, then with the plan, streaming and the speed.

Run it from anywhere: python examples/python/generate.py [MODEL]
"""

import sys
from pathlib import Path

import skulk

MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "models" / "stories260K"


def five_lines() -> None:
    model = skulk.Model.load(MODEL)
    for event in model.generate("Once upon a time", max_tokens=40):
        print(event, end="", flush=True)
    print()


def with_everything() -> None:
    model = skulk.Model.load(MODEL, stages=2)
    print(model.placement)
    for stage in model.stages:
        print(f"  {stage.layers}: {stage.weight_bytes:,} bytes of weights on {stage.device}")
    generation = model.generate(
        "The little dog",
        max_tokens=60,
        temperature=0.8,
        top_p=0.95,
        seed=7,
        stop=["The end"],
        logprobs=0,
    )
    print(f"prompt: {generation.prompt_ids}")
    surprise = 0.0
    for event in generation:
        print(event, end="", flush=True)
        if event.token is not None and event.token.logprob is not None:
            surprise -= event.token.logprob
        if event.finish is not None:
            usage, timings = event.finish.usage, event.finish.timings
            print(
                f"\n[{event.finish.reason}] {usage.completion_tokens} tokens, "
                f"{surprise / usage.completion_tokens:.2f} nats each, "
                f"loaded in {timings.load:.3f} s, first token after {timings.time_to_first_token:.3f} s, "
                f"then {timings.decode_tokens_per_second:.0f} tok/s"
            )


if __name__ == "__main__":
    five_lines()
    with_everything()
