"""Put the programs and units of deploy/ into the cloud-init examples that install them.

`python -m scripts.user_data` rewrites the examples; a test tells when that was forgotten. In an
example everything is written by hand except the `content` of the paths in `SOURCES`.
"""

import re
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"

EXAMPLES = (DEPLOY / "agent" / "cloud-init.yaml", DEPLOY / "bootstrap" / "cloud-init.yaml")

SOURCES = {
    "/opt/bigfleet/bootstrap": DEPLOY / "bootstrap" / "bootstrap",
    "/opt/bigfleet/eviction-agent": DEPLOY / "agent" / "eviction-agent",
    "/etc/systemd/system/bigfleet-eviction-agent.service": DEPLOY
    / "agent"
    / "bigfleet-eviction-agent.service",
    "/etc/systemd/system/bigfleet-wire-server.service": DEPLOY
    / "bootstrap"
    / "bigfleet-wire-server.service",
}
"""What each path in a machine is filled from."""

_ENTRY = re.compile(
    r"^  - path: (?P<path>\S+)\n(?P<keys>(?:    \w+: [^|\n]+\n)*)"
    r"    content: \|\n(?P<content>(?:      .*\n|\n)*)",
    re.MULTILINE,
)
"""One entry of `write_files`, as the examples lay them out."""


def filled(example: str) -> str:
    """The text of an example with the programs and units as they are now."""
    return _ENTRY.sub(_fill, example)


def _fill(entry: re.Match[str]) -> str:
    source = SOURCES.get(entry["path"])
    if source is None:
        return entry[0]
    lines = source.read_text(encoding="utf-8").splitlines()
    content = "".join(f"      {line}\n" if line else "\n" for line in lines)
    return f"  - path: {entry['path']}\n{entry['keys']}    content: |\n{content}\n"


def main() -> None:
    """Rewrite the examples."""
    for example in EXAMPLES:
        example.write_text(filled(example.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
