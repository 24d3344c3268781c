"""Write what is made from the code: the pages of docs/reference/, the chart's README and dashboard.

A test runs it with --check, so that a page cannot fall behind. A new page is a function that
returns its text, and a line in `PAGES`.
"""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from bigfleet_azure.backends.azure.actions import Action, Reach, actions
from bigfleet_azure.backends.azure.error_rules import Rule, Step
from bigfleet_azure.backends.azure.error_table import RULES
from bigfleet_azure.backends.azure.verdict import SCOPE_MEANINGS, Scope, Verdict
from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.daemon.options import OPTIONS, Option
from bigfleet_azure.domain.lifecycle import (
    LOSS_WALKS,
    TRANSITIONS,
    WITH_CLUSTER,
    WITH_HOST,
    State,
)
from bigfleet_azure.kit.duration import spell
from bigfleet_azure.telemetry.metrics import Metrics

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts import behaviours, chart_values, dashboard

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
NOTICE = "<!-- Made by scripts/generate_docs.py; edit the code it is made from. -->\n"


def flags() -> str:
    """The page of all settings of `serve`."""
    parts = [
        "# Flags",
        "The settings of `bigfleet-azure serve`. The word `serve` may be left out.",
        "Every setting can be given in three ways; the first that is there counts:",
        "1. as a flag: `--seed-count=64`, `--seed-count 64` or `-seed-count 64`. A boolean is bare "
        "(`--use-fake-backend`) or takes its value after `=` (`--reflection=false`). "
        "The last of several equal flags counts.\n"
        "2. as an environment variable: `BIGFLEET_AZURE_SEED_COUNT=64`. Unknown variables that "
        "begin so are named in a warning.\n"
        "3. in the YAML file of `--config`, one line each: `seed-count: 64`. "
        "Unknown keys are refused.",
        "Durations are written as in Go: `500ms`, `90s`, `8m`, `1h30m`; only `0` needs no unit. "
        "Unusable settings are all reported at once, and the program ends with "
        "[exit code 2](exit-codes.md).",
    ]
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        rows = [
            "| Flag | Default | Variable | Meaning |",
            "| --- | --- | --- | --- |",
            *(_flag_row(option) for option in options),
        ]
        parts += [f"## {group}", "\n".join(rows)]
    return _page(parts)


def _flag_row(option: Option) -> str:
    flag = "(no flag)" if option.env_only else f"`--{option.name}`"
    values = f" `{option.metavar}`" if option.metavar else ""
    default = option.derived or (f"`{option.default}`" if option.default else "(empty)")
    variables = ", ".join(f"`{variable}`" for variable in (option.env, *option.env_aliases))
    cells = (flag + values, default, variables, option.help)
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def exit_codes() -> str:
    """The page of exit codes."""
    rows = ["| Code | Meaning |", "| --- | --- |"]
    rows += [f"| {int(code)} | {_cell(code.meaning)} |" for code in Exit]
    return _page(
        [
            "# Exit codes",
            "How every command of `bigfleet-azure` ends. "
            "What went wrong is said on standard error; results alone go to standard output.",
            "\n".join(rows),
        ]
    )


def metrics() -> str:
    """The page of metric families."""
    rows = ["| Metric | Type | Labels | Meaning |", "| --- | --- | --- | --- |"]
    for family in sorted(_families(), key=lambda family: next(iter(family.describe())).name):
        described = next(iter(family.describe()))
        name = described.name + ("_total" if described.type == "counter" else "")
        labels = ", ".join(f"`{label}`" for label in family._labelnames)
        text = described.documentation
        rows.append(f"| `{name}` | {described.type} | {labels or '-'} | {_cell(text)} |")
    return _page(
        [
            "# Metrics",
            "Served at `/metrics` of `--metrics-addr` in Prometheus' text format, beside the usual "
            "`process_*` and `python_info`. Label values are bounded sets: never a machine id, a "
            "cluster or a message. A family with labels appears with its first observation.",
            "\n".join(rows),
        ]
    )


def _families() -> list[MetricWrapperBase]:
    return [f for f in vars(Metrics()).values() if isinstance(f, MetricWrapperBase)]


def state_machine() -> str:
    """The page of the lifecycle, drawn from the transition table."""
    diagram = ["stateDiagram-v2", "    [*] --> SPECULATIVE"]
    for kind, step in TRANSITIONS.items():
        diagram += [
            f"    {step.source.name} --> {step.via.name}: {kind.capitalize()}",
            f"    {step.via.name} --> {step.target.name}",
            f"    {step.via.name} --> FAILED",
        ]
    calls = ["| Call | Legal from | At accept | On success |", "| --- | --- | --- | --- |"]
    calls += [
        f"| {kind.capitalize()} | {step.source.name} | {step.via.name} | {step.target.name} |"
        for kind, step in TRANSITIONS.items()
    ]
    carried = ["| State | host | cluster and shard_metadata |", "| --- | --- | --- |"]
    carried += [
        f"| {state.name} | {_mark(state in WITH_HOST)} | {_mark(state in WITH_CLUSTER)} |"
        for state in State
        if state is not State.FAILED
    ]
    losses = ["| Host lost while | Shown as | Then |", "| --- | --- | --- |"]
    losses += [
        f"| {state.name} | {walk.via.name} | {walk.target.name} |"
        for state, walk in LOSS_WALKS.items()
    ]
    return _page(
        [
            "# State machine",
            "```mermaid\n" + "\n".join(diagram) + "\n```",
            "\n".join(calls),
            "What a machine carries; FAILED keeps what it had, and alone has a `last_error`.",
            "\n".join(carried),
            "What a shard is shown when a settled machine's host is lost, each state served by a "
            "List before the next.",
            "\n".join(losses),
        ]
    )


def _mark(present: bool) -> str:
    return "yes" if present else "no"


def azure_errors() -> str:
    """The page of what Azure's refusals mean."""
    scopes = ["| Scope | Who is blocked |", "| --- | --- |"]
    scopes += [f"| {scope} | {SCOPE_MEANINGS[scope]} |" for scope in Scope]
    parts = [
        "# Azure's errors",
        "What the daemon makes of a refusal. Rules are tried in this order, step by step; the "
        "first that fits decides. An HTTP status decides only where it is named. `*` stands for "
        "any beginning or end, and case does not matter.",
        "The kinds `out_of_capacity`, `quota`, `throttled`, `transient` and `unknown` are tried "
        "again until the operation's deadline; the others end it at once. A block withholds unused "
        "slots of the offerings in its scope for the time given, or until an operation succeeds.",
    ]
    number = 0
    for step in Step:
        rows = [
            "| # | Code | Text | Status | Call | Kind | Scope | Block | Also | What to do |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for rule in (rule for rule in RULES if rule.step is step):
            number += 1
            rows.append(_rule_row(number, rule))
        parts += [f"## {step.capitalize()}", step.meaning, "\n".join(rows)]
    return _page([*parts, "## Scopes", "\n".join(scopes)])


def _rule_row(number: int, rule: Rule) -> str:
    means = rule.means
    cells = (
        str(number),
        ", ".join(f"`{code}`" for code in rule.codes) or "any",
        " or ".join(f'"{text}"' for text in rule.says),
        "no answer" if rule.status == "0" else rule.status,
        ", ".join(f"`{call}`" for call in rule.calls),
        means.kind,
        means.scope if means.seconds else "",
        _block_time(means),
        "; ".join(_also(means)),
        means.hint,
    )
    return "| " + " | ".join(_cell(cell) or "-" for cell in cells) + " |"


def _block_time(means: Verdict) -> str:
    times = [_spelt(means.seconds)] if means.seconds else []
    if means.spot_seconds is not None:
        times.append(f"Spot {_spelt(means.spot_seconds)}")
    return ", ".join(times)


def _also(means: Verdict) -> list[str]:
    marks = {
        "the VM exists": means.exists,
        "it does not exist": means.gone,
        "it is being deleted": means.deleting,
        "the next try takes new names": means.names_taken,
        "the credential is the trouble": means.credential,
        f"next try after {_spelt(means.busy_seconds or 0)}": means.busy_seconds is not None,
    }
    return [text for text, holds in marks.items() if holds]


def _spelt(seconds: float) -> str:
    return spell(timedelta(seconds=seconds))


def contract_behaviours() -> str:
    """The page of contract behaviours and the tests that prove them."""
    return _page(
        [
            "# Contract behaviours and their tests",
            "The numbered behaviours of the provider contract, and the tests that carry their "
            "numbers.",
            behaviours.page(),
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _page(parts: list[str]) -> str:
    return NOTICE + "\n" + "\n\n".join(parts) + "\n"


def azure_actions() -> str:
    """The page of the rights that the daemon needs on Azure."""
    parts = [
        "# Azure actions",
        "What the daemon's principal must be allowed to do, and nothing more. The same list as "
        "data is [azure-actions.json](azure-actions.json). An action with a condition is needed "
        "only when that is set, by flag or by an offering's key.",
    ]
    for reach in Reach:
        rows = ["| Action | For | Needed with |", "| --- | --- | --- |"]
        rows += [_action_row(action) for action in actions() if action.reach is reach]
        parts += [f"## On {reach}", "\n".join(rows)]
    return _page(parts)


def _action_row(action: Action) -> str:
    option = f"`{action.option}`" if action.option.startswith("--") else action.option
    return f"| `{action.name}` | {_cell(action.why)} | {_cell(option) or 'always'} |"


def azure_actions_data() -> str:
    """The same for programs: roles are made from it."""
    entries = [
        {"action": each.name, "reach": each.reach.name.lower(), "option": each.option}
        for each in actions()
    ]
    return json.dumps(entries, indent=2) + "\n"


def values_of_the_chart() -> str:
    """The page of the chart's values."""
    return _page(
        [
            "# Values of the chart",
            "Of `helm/bigfleet-azure`. A flag whose value is empty is not given to the daemon; "
            "the default shown is then the daemon's own.",
            chart_values.table().rstrip(),
        ]
    )


PAGES: dict[Path, Callable[[], str]] = {
    REFERENCE / "flags.md": flags,
    REFERENCE / "exit-codes.md": exit_codes,
    REFERENCE / "metrics.md": metrics,
    REFERENCE / "state-machine.md": state_machine,
    REFERENCE / "behaviours.md": contract_behaviours,
    REFERENCE / "azure-errors.md": azure_errors,
    REFERENCE / "azure-actions.md": azure_actions,
    REFERENCE / "azure-actions.json": azure_actions_data,
    # The module is used without the documentation, too.
    ROOT / "terraform" / "actions.json": azure_actions_data,
    REFERENCE / "chart-values.md": values_of_the_chart,
    chart_values.README: chart_values.readme,
    chart_values.CHART / "files" / "dashboard.json": dashboard.dashboard,
}


def stale() -> list[Path]:
    """The pages that are missing or no longer what the code says."""
    return [
        path
        for path, page in PAGES.items()
        if not path.exists() or path.read_text(encoding="utf-8") != page()
    ]


def main() -> int:
    """Write the stale pages, or with --check only name them and fail."""
    parser = argparse.ArgumentParser(description="Generate docs/reference from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when stale")
    check = parser.parse_args().check
    pages = stale()
    for path in pages:
        if check:
            print(f"{path} is stale; run scripts/generate_docs.py", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PAGES[path](), encoding="utf-8")
            print(f"wrote {path}")
    return 1 if check and pages else 0


if __name__ == "__main__":
    raise SystemExit(main())
