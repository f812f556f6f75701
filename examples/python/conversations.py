"""Holds 16 conversations at once in one event loop, with a progress line each.

Run it from anywhere: python examples/python/conversations.py [MODEL]
"""

import asyncio
import sys
import time
from pathlib import Path

import skulk

MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "models" / "stories260K"
COUNT = 16
OPENING = (
    "Once upon a time, there was a little girl named Lily. She lived in a big house with her mom and her dad. "
    "She had many friends, and she loved to play with them in the park."
)
FRIENDS = ("cat", "dog", "bird", "boy", "fish", "bear", "bug", "duck")


class Lines:
    """A line for each conversation: drawn again and again on a terminal, else once."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty()
        if self.live:
            print("\n" * COUNT, end="")

    def show(self, i: int, text: str, *, last: bool = False) -> None:
        if self.live:
            up = COUNT - i
            print(f"\x1b[{up}A\r\x1b[K{text[:78]}\x1b[{up}B\r", end="", flush=True)
        elif last:
            print(text)


async def converse(i: int, session: skulk.Session, lines: Lines) -> int:
    text, tokens, cached = "", 0, 0
    for said in (f" One day, Lily met a {FRIENDS[i % len(FRIENDS)]}", " Her mom said,"):
        text += said
        async for event in session.generate(said, append=True, max_tokens=32, temperature=0.7, seed=i):
            text += event.text
            tokens += event.token is not None
            if event.finish is not None:
                cached += event.finish.usage.cached_tokens
            lines.show(i, f"{i:>2}: {tokens:>3} tokens ...{text[-58:]}")
    lines.show(i, f"{i:>2}: {tokens:>3} tokens, {cached} not computed again: {text.strip()}", last=True)
    return tokens


async def main() -> None:
    model = skulk.Model.load(MODEL)
    # How all begin is computed once: each conversation is a fork of it.
    opening = model.session()
    read = await opening.generate(OPENING, max_tokens=1)
    opening.truncate(read.finish.usage.prompt_tokens)
    lines, began = Lines(), time.monotonic()
    counts = await asyncio.gather(*(converse(i, opening.fork(), lines) for i in range(COUNT)))
    seconds = time.monotonic() - began
    memory = model.kv_memory
    print(f"{sum(counts)} tokens, {sum(counts) / seconds:.0f} a second; keys and values {memory.in_use_bytes:,} bytes")


if __name__ == "__main__":
    asyncio.run(main())
