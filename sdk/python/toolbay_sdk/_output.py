"""The results of tools, and their conversion to the record of the contract."""

from dataclasses import dataclass, field
from typing import Any, Sequence

from ._json import dump, plain
from .errors import failed

_NOTHING = object()


@dataclass
class Block:
    """A block of an output: its kind, its content, and its audience, priority and time of change."""

    kind: str
    value: Any
    annotations: tuple[tuple[str, ...], float | None, str | None] | None = None


@dataclass
class Output:
    """A result built by hand: text for the model, data for programs, blocks, cost."""

    value: str = ""
    data: Any = _NOTHING
    content: list["Block"] = field(default_factory=list)
    cost_usd: float | None = None
    meta: dict[str, Any] | None = None

    def structured(self, data: Any) -> "Output":
        """Sets the structured result for programs. A value that is not an object is wrapped as ``{"result": …}``."""
        self.data = data
        return self

    def text(self, text: str) -> "Output":
        """Adds a block of text."""
        self.content.append(Block("text", text))
        return self

    def image(self, data: bytes, mime_type: str) -> "Output":
        """Adds an image."""
        self.content.append(Block("image", (bytes(data), mime_type)))
        return self

    def audio(self, data: bytes, mime_type: str) -> "Output":
        """Adds audio."""
        self.content.append(Block("audio", (bytes(data), mime_type)))
        return self

    def link(self, uri: str, name: str, *, title: str | None = None, description: str | None = None,
             mime_type: str | None = None, size: int | None = None) -> "Output":
        """Adds a link to a resource."""
        self.content.append(Block("link", (uri, name, title, description, mime_type, size)))
        return self

    def embedded(self, uri: str, data: str | bytes, mime_type: str | None = None) -> "Output":
        """Adds a resource with its content."""
        self.content.append(Block("embedded", (uri, mime_type, data if isinstance(data, str) else bytes(data))))
        return self

    def annotate(self, *, audience: Sequence[str] = (), priority: float | None = None,
                 last_modified: str | None = None) -> "Output":
        """Annotates the last block. `audience` holds ``user`` and ``assistant``; an empty one means everyone. `priority` is
        0 to 1, `last_modified` ISO 8601."""
        if not self.content:
            raise failed("there is no block to annotate")
        self.content[-1].annotations = (tuple(audience), priority, last_modified)
        return self

    def cost(self, usd: float) -> "Output":
        """Sets the cost of the call, in US dollars."""
        self.cost_usd = usd
        return self

    def metadata(self, meta: dict[str, Any]) -> "Output":
        """Adds metadata for the host. The model never sees it."""
        self.meta = meta
        return self

    def structured_json(self) -> str | None:
        """The structured result as a JSON object."""
        return None if self.data is _NOTHING else _object(dump(self.data))

    def meta_json(self) -> str | None:
        """The metadata as a JSON object."""
        return None if self.meta is None else dump(self.meta)


def rendered(text: str, data: Any) -> Output:
    """A result with a text for the model and data for programs."""
    return Output(text, data)


def output_of(result: Any) -> Output:
    """Converts the result of a function to an output: text is unchanged, everything else becomes JSON."""
    if isinstance(result, Output):
        return result
    if result is None:
        return Output()
    if isinstance(result, str):
        return Output(result)
    data = plain(result)
    return Output(dump(data), data)


def _object(text: str) -> str:
    return text if text.startswith("{") else f'{{"result":{text}}}'
