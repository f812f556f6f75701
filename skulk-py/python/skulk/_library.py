"""Which models are known without being there? Cards by their model's id, built-in ones and the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path

from . import _skulk
from ._contract import ModelCard
from ._errors import Error


class CardLibrary(Mapping[str, ModelCard]):
    """Cards by their model's id, in order: the built-in ones, and folders of yours over them.

    A file that is no card stops nothing: it is one of the `problems`.
    """

    __slots__ = ("_library",)

    def __init__(self, *folders: str | PathLike[str], builtin: bool = True) -> None:
        """Searches the folders, and those in them; later ones override earlier ones."""
        self._library = _skulk.Library(builtin, [fspath(folder) for folder in folders])

    def __getitem__(self, model_id: str) -> ModelCard:
        """The card of a model. Raises KeyError when there is none."""
        card = self._library.get(model_id) if isinstance(model_id, str) else None
        if card is None:
            raise KeyError(model_id)
        return card

    def __iter__(self) -> Iterator[str]:
        """The ids, in order."""
        return iter(self._library.ids())

    def __len__(self) -> int:
        """Cards in effect."""
        return len(self._library.ids())

    def __repr__(self) -> str:
        return f"<skulk.CardLibrary: {len(self)} cards, {len(self.problems)} problems>"

    @property
    def folders(self) -> list[Path]:
        """Your folders, in their order."""
        return self._library.folders()

    @property
    def problems(self) -> list[Error]:
        """Why files are not among the cards. Each names its file."""
        return self._library.problems()

    def file(self, model_id: str) -> Path | None:
        """The file of a model's card; none for those that are built in."""
        return self._library.file(model_id)

    def add_folder(self, folder: str | PathLike[str]) -> None:
        """Searches one more folder, whose cards override all that are there."""
        self._library.add_folder(folder)

    def reload(self) -> None:
        """Searches the folders again. Only files whose time or size changed are read."""
        self._library.reload()

    def save(self, folder: str | PathLike[str], card: ModelCard) -> Path:
        """Writes a card into one of the library's folders, and tells the file.

        Raises `InvalidArgumentError` for another folder, or an id that cannot name a file.
        """
        return self._library.save(folder, card)

    def remove(self, model_id: str) -> bool:
        """Deletes the file of a card of yours; an earlier source's card shows again. False: there is none."""
        return self._library.remove(model_id)
