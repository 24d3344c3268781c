"""Refusals that depend on how the daemon is deployed."""

from dataclasses import replace

import pytest

from bigfleet_azure.domain.decide import (
    Accepted,
    Command,
    Decision,
    Limits,
    Refused,
    View,
    decide,
)
from bigfleet_azure.domain.errors import RefusalReason
from bigfleet_azure.domain.fence import Token
from bigfleet_azure.domain.lifecycle import Kind, State
from bigfleet_azure.domain.limits import Deadlines
from bigfleet_azure.domain.machine import Record

IDLE = Record(slot=1 << 20, id="m-000", state=State.IDLE, change=5, host="/hosts/m-000", created=4)
DEADLINES = Deadlines(create=1.0, configure=1.0, drain=1.0, delete=1.0)


def configured(cluster: str, only: str, record: Record = IDLE) -> Decision:
    return decide(
        Command(kind=Kind.CONFIGURE, machine_id=IDLE.id, token=Token("s", 1, 1), cluster=cluster),
        View(record=record, stored=True, mark=None, side_mark=False),
        now=10.0,
        change=6,
        queued=False,
        limits=Limits(deadlines=DEADLINES, blob_bytes=10, cluster=only),
    )


@pytest.mark.behaviour(14)
def test_where_machines_can_join_one_cluster_only_another_one_is_refused_by_both_names() -> None:
    decision = configured("green", only="blue")
    assert isinstance(decision, Refused)
    assert decision.refusal.reason is RefusalReason.INVALID
    assert "'blue'" in decision.refusal.message
    assert "'green'" in decision.refusal.message
    assert decision.changes.blob is None
    (moved,) = decision.changes.records
    assert replace(moved, mark=None) == IDLE
    assert isinstance(configured("blue", only="blue"), Accepted)


def test_where_any_cluster_can_be_joined_none_is_refused() -> None:
    assert isinstance(configured("green", only=""), Accepted)
    assert isinstance(configured("blue", only=""), Accepted)


def test_a_wrong_state_comes_before_a_wrong_cluster() -> None:
    decision = configured("green", only="blue", record=replace(IDLE, state=State.FAILED))
    assert isinstance(decision, Refused)
    assert decision.refusal.reason is RefusalReason.ILLEGAL_STATE
