"""A value that must never be shown: the bootstrap blob, tokens, keys."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Secret:
    """Bytes whose text form is masked wherever they are formatted, logged or compared in a test.

    `reveal()` is the only way to the content, so that its uses can be found.
    """

    _value: bytes = field(repr=False)

    def reveal(self) -> bytes:
        """The content itself; never format, log or store it in clear."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret(***)"
