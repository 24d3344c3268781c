"""Which test proves which numbered behaviour of the contract: read from the tests' marks.

Gives `scripts/generate_docs.py` its page, and a test the numbers that nothing proves.
"""

import ast
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"


def described() -> dict[int, str]:
    """The behaviours, by number."""
    return {int(number): text for number, text in _table()["behaviours"].items()}


def proofs() -> dict[int, list[str]]:
    """For each number, its tests as `file::test`, sorted."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        _collect(ast.parse(path.read_text(encoding="utf-8")), path, found)
    return {number: sorted(tests) for number, tests in found.items()}


def page() -> str:
    """The reference page, without its title."""
    tests = proofs()
    rows = ["| # | Behaviour | Proved by |", "| --- | --- | --- |"]
    for number, text in described().items():
        names = "<br>".join(f"`{name}`" for name in tests.get(number, [])) or "**nothing**"
        rows.append(f"| {number} | {text} | {names} |")
    return "\n".join(rows)


def _table() -> dict[str, Any]:
    return tomllib.loads((TESTS / "behaviours.toml").read_text(encoding="utf-8"))


def _collect(tree: ast.AST, path: Path, found: dict[int, set[str]]) -> None:
    """Marks of functions and classes, and of whole modules (`pytestmark = …`)."""
    where = path.relative_to(TESTS).as_posix()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for mark in node.decorator_list:
                for number in _numbers(mark):
                    found[number].add(f"{where}::{node.name}")
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            for call in ast.walk(node.value):
                for number in _numbers(call):
                    found[number].add(where)


def _numbers(mark: ast.AST) -> list[int]:
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != "pytest.mark.behaviour":
        return []
    values = [arg.value for arg in mark.args if isinstance(arg, ast.Constant)]
    return [value for value in values if isinstance(value, int)]
