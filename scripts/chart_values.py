"""The table of the chart's values, made from its schema, its defaults and the table of flags.

`generate_docs` writes it into the chart's README and into a reference page. A value that becomes a
flag says so in the schema (`x-flag`); where the schema has no description, the flag's help is it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bigfleet_azure.daemon.options import OPTIONS

CHART = Path(__file__).resolve().parent.parent / "helm" / "bigfleet-azure"
README = CHART / "README.md"

_BEGIN = (
    "<!-- Below: made by scripts/generate_docs.py from values.schema.json and values.yaml. -->\n"
)
_BY_NAME = {option.name: option for option in OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value that can be set.

    Attributes:
        path: its keys, joined by dots.
        default: what values.yaml gives; None where it says nothing.
        flags: the daemon's flags that it becomes.
        text: what it means.
    """

    path: str
    default: Any
    flags: tuple[str, ...]
    text: str


def values() -> Iterator[Value]:
    """Every value, in the order of the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return _walk(schema, defaults, "")


def _walk(schema: Mapping[str, Any], defaults: Any, path: str) -> Iterator[Value]:
    for key, inner in schema["properties"].items():
        default = defaults.get(key) if isinstance(defaults, dict) else None
        where = f"{path}{key}"
        if "properties" in inner:
            yield from _walk(inner, default, f"{where}.")
            continue
        named = inner.get("x-flag", [])
        flags = (named,) if isinstance(named, str) else tuple(named)
        text = inner.get("description") or " ".join(_BY_NAME[flag].help for flag in flags)
        yield Value(path=where, default=default, flags=flags, text=text)


def _default(value: Value) -> str:
    """The default as one would write it; what the daemon does by itself where nothing is given."""
    if value.default in ("", None) and len(value.flags) == 1:
        option = _BY_NAME[value.flags[0]]
        if option.derived:
            return option.derived.replace("<", "&lt;")
        return f"`{option.default}`" if option.default else "(empty)"
    if value.default in ("", None):
        return "(empty)"
    text = value.default if isinstance(value.default, str) else json.dumps(value.default)
    return f"`{text}`"


def table() -> str:
    """The values as a table in Markdown."""
    rows = ["| Value | Default | Flag | Meaning |", "| --- | --- | --- | --- |"]
    for value in values():
        flags = ", ".join(f"`--{flag}`" for flag in value.flags)
        cells = (f"`{value.path}`", _default(value), flags, value.text)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def readme() -> str:
    """The chart's README: what people wrote, then the table."""
    written = README.read_text(encoding="utf-8").partition(_BEGIN)[0]
    return f"{written}{_BEGIN}\n{table()}"
