"""Streams several generations in one event loop, and stops one of them early.

Run it from anywhere: python examples/python/async_cancel.py [MODEL]
"""

import asyncio
import sys
from pathlib import Path

import skulk

MODEL = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "models" / "stories260K"


async def tell(model: skulk.Model, prompt: str) -> str:
    text = prompt
    async for event in model.generate(prompt, max_tokens=30):
        text += event.text
    return text


async def main() -> None:
    model = skulk.Model.load(MODEL)

    prompts = ["Once upon a time", "The little dog", "One day, Lily"]
    for story in await asyncio.gather(*(tell(model, prompt) for prompt in prompts)):
        print(f"- {story}")

    # A task that is cancelled ends its generation within one layer's work.
    session = model.session()

    async def read() -> None:
        async for _ in session.generate("Once upon a time", ignore_eos=True):
            await asyncio.sleep(0.01)  # A slow reader: the generation waits for it.

    task = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print(f"cancelled after {len(session.tokens)} tokens; the session goes on:")
    session.generate(" Then", append=True, max_tokens=20).text()
    print(model.tokenizer.decode(session.tokens))


if __name__ == "__main__":
    asyncio.run(main())
