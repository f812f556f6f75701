"""How does litellm use a model of skulk? As a provider of its own: pip install litellm.

    python litellm_provider.py [model]
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import litellm
from litellm import CustomLLM
from litellm.types.utils import GenericStreamingChunk, ModelResponse

import skulk

STORIES = Path(__file__).parents[1] / "models" / "stories260K"

OPTIONS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
    "stop": "stop",
}
"""What litellm calls options, and what they are here. Others are refused."""


class Skulk(CustomLLM):
    """Models by the names under which they were loaded."""

    def __init__(self, models: dict[str, skulk.Model]) -> None:
        super().__init__()
        self.models = models

    def started(self, model: str, messages: list[Any], optional_params: dict[str, Any]) -> skulk.Generation:
        """The messages' texts, one behind the other: models of stories know no chat."""
        given = {name: value for name, value in optional_params.items() if name != "stream"}
        options: Any = {OPTIONS.get(name, name): value for name, value in given.items()}
        if isinstance(options.get("stop"), str):
            options["stop"] = [options["stop"]]
        return self.models[model].generate("\n".join(message["content"] for message in messages), **options)

    def completion(self, *_: Any, **given: Any) -> ModelResponse:
        generation = self.started(given["model"], given["messages"], given["optional_params"])
        output = generation.output()
        response: ModelResponse = given["model_response"]
        response.choices[0].message.content = output.text
        response.choices[0].finish_reason = reason(output.finish)
        usage = output.finish.usage
        response.usage = litellm.Usage(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            total_tokens=usage.prompt_tokens + usage.completion_tokens,
        )
        return response

    def streaming(self, *_: Any, **given: Any) -> Iterator[GenericStreamingChunk]:
        with self.started(given["model"], given["messages"], given["optional_params"]) as generation:
            for event in generation:
                yield chunk(event)

    async def astreaming(self, *_: Any, **given: Any) -> AsyncIterator[GenericStreamingChunk]:
        async for event in self.started(given["model"], given["messages"], given["optional_params"]):
            yield chunk(event)


def reason(finish: skulk.Finish) -> str:
    """Why a generation ended, in the words of OpenAI's interface."""
    return "length" if finish.reason == "length" else "stop"


def chunk(event: skulk.Event) -> GenericStreamingChunk:
    return {
        "text": event.text,
        "is_finished": event.finish is not None,
        "finish_reason": "" if event.finish is None else reason(event.finish),
        "usage": None,
        "index": 0,
        "tool_use": None,
    }


def main() -> None:
    model = skulk.Model.load(sys.argv[1] if len(sys.argv) > 1 else STORIES)
    litellm.custom_provider_map = [{"provider": "skulk", "custom_handler": Skulk({"stories": model})}]
    messages = [{"role": "user", "content": "Once upon a time, there was a dog"}]
    answer = litellm.completion("skulk/stories", messages, max_tokens=24)
    print(answer.choices[0].message.content, answer.usage.completion_tokens)
    for part in litellm.completion("skulk/stories", messages, max_tokens=8, temperature=0.5, seed=3, stream=True):
        print(part.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
