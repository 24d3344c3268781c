"""One operation on its way: what is persisted of it, what the backend is given, how long is left.

Who runs it is `service.executor`; nothing here awaits or reads a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bigfleet_azure.backends.base import Assignment, Host, Progress
from bigfleet_azure.domain.machine import Record
from bigfleet_azure.domain.operation import Operation
from bigfleet_azure.domain.secret import Secret


@dataclass(slots=True, kw_only=True)
class Run:
    """One operation on its way.

    Attributes:
        record: the machine as it was when the operation was accepted or resumed.
        operation: the operation as it is persisted now.
        work: what the backend is given.
        blob: the bootstrap blob, while it is needed and known without the store.
        trouble: what the last refused try said, for the text of a spent deadline.
        ids: what the substrate's support finds the definite refusal by.
    """

    record: Record
    operation: Operation
    work: Assignment
    blob: Secret | None
    trouble: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def host(self) -> Host:
        """The host it works on, as it was when the operation began."""
        return Host(ref=self.work.host, parts=self.work.parts)

    def noted(self, progress: Progress) -> None:
        """Take what the backend noted into what is persisted and what it is given next."""
        self.operation = replace(
            self.operation, attempt=progress.attempt, url=progress.url, begun=progress.begun
        )
        self.work = replace(self.work, progress=progress)

    def until(self, deadline: float) -> None:
        """Take a later deadline, now that it has waited for a place."""
        self.operation = replace(self.operation, deadline=deadline, queued=False)
        self.work = replace(self.work, deadline=deadline)

    def seconds_left(self, now: float) -> float:
        """Time until its deadline; all of it while it was never given a place.

        Never more than all of it, also when the wall clock was set back since the accept.
        """
        accepted_at = self.operation.accepted_at
        begun = accepted_at if self.operation.queued else max(accepted_at, now)
        return self.operation.deadline - begun

    def deadline_text(self) -> str:
        """Why it FAILED, when its deadline is spent."""
        seconds = self.operation.deadline - self.operation.accepted_at
        text = f"{self.operation.kind} deadline exceeded after {seconds:g}s"
        return f"{text}; last trouble: {self.trouble}" if self.trouble else text
