"""How does LangChain use a model of skulk? As an `LLM` of its own: pip install langchain-core.

    python langchain_llm.py [model]
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.llms import LLM
from langchain_core.outputs import GenerationChunk
from langchain_core.prompts import PromptTemplate

import skulk

STORIES = Path(__file__).parents[1] / "models" / "stories260K"


class Skulk(LLM):
    """A loaded model, with the options that its generations take unless a call gives others."""

    model: skulk.Model
    options: dict[str, Any] = {}

    @property
    def _llm_type(self) -> str:
        return "skulk"

    def _started(self, prompt: str, stop: list[str] | None, given: dict[str, Any]) -> skulk.Generation:
        options = self.options | given
        return self.model.generate(prompt, **(options if stop is None else options | {"stop": stop}))

    def _call(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **given: Any,
    ) -> str:
        return self._started(prompt, stop, given).text()

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **given: Any,
    ) -> Iterator[GenerationChunk]:
        with self._started(prompt, stop, given) as generation:
            for event in generation:
                yield GenerationChunk(text=event.text)

    async def _astream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **given: Any,
    ) -> AsyncIterator[GenerationChunk]:
        async for event in self._started(prompt, stop, given):
            yield GenerationChunk(text=event.text)


def main() -> None:
    model = skulk.Model.load(sys.argv[1] if len(sys.argv) > 1 else STORIES)
    chain = PromptTemplate.from_template("Once upon a time, there was a {who}") | Skulk(
        model=model, options={"max_tokens": 24}
    )
    for text in chain.stream({"who": "dog"}, stop=["."]):
        print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
