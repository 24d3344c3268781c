"""An extension on a VM as Compute answers it; its protected settings never leave it."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.arm.resources import Resource
from tests.support.arm.wire import Json


@dataclass(eq=False)
class Extension(Resource):
    """One extension on one VM."""

    publisher: str = ""
    kind: str = ""
    version: str = ""
    protected: Any = None
    sent: Json = field(default_factory=dict)
    ran: Json | None = None
    """The settings that last ran; equal ones do not run again."""
    error: Json | None = None
    """How the last run failed."""
    statuses: list[Json] = field(default_factory=list)

    @property
    def handler(self) -> str:
        return f"{self.publisher}.{self.kind}"

    def view(self, *, instance: bool = False) -> Json:
        properties: Json = {
            "autoUpgradeMinorVersion": self.sent.get("autoUpgradeMinorVersion", False),
        }
        if "forceUpdateTag" in self.sent:
            properties["forceUpdateTag"] = self.sent["forceUpdateTag"]
        properties["provisioningState"] = self.state
        if instance:
            properties["instanceView"] = self.instance_view()
        if "enableAutomaticUpgrade" in self.sent:
            properties["enableAutomaticUpgrade"] = self.sent["enableAutomaticUpgrade"]
        properties |= {
            "publisher": self.publisher,
            "type": self.kind,
            "typeHandlerVersion": self.version,
        }
        if "settings" in self.sent:
            properties["settings"] = self.sent["settings"]
        body: Json = {
            "name": self.name,
            "id": self.id,
            "type": "Microsoft.Compute/virtualMachines/extensions",
            "location": self.location,
        }
        if self.tags:
            body["tags"] = dict(self.tags)
        return {**body, "properties": properties}

    def instance_view(self) -> Json:
        if not self.statuses:
            return {"name": self.name}
        return {
            "name": self.name,
            "type": self.handler,
            "typeHandlerVersion": f"{self.version}.0",
            "statuses": self.statuses,
        }
