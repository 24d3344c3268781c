"""What one setting is: the row of the tables in `options` and `azure_flags`.

The settings themselves stand there; how values are found is `settings`'.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bigfleet_azure.daemon import values

ENV_PREFIX = "BIGFLEET_AZURE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: its flag, its variable, its key in the file, and what it means.

    Attributes:
        name: the flag without dashes; with underscores, the field of `Settings`.
        parse: turns the text into the value; raises ValueError with the rest of a sentence
            that begins with the value.
        default: as a user would write it.
        help: one or two sentences for the help text and the reference page.
        group: heading it is listed under.
        metavar: what stands for the value in help; empty for booleans, whose flags may be bare.
        derived: how an empty default is filled in, for people.
        secret: the value is never shown.
        env_only: there is no flag and no key for it, only the variable.
        env_aliases: further variables, read after the main one.
    """

    name: str
    parse: Callable[[str], Any]
    default: str
    help: str
    group: str
    metavar: str = ""
    derived: str = ""
    secret: bool = False
    env_only: bool = False
    env_aliases: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """Its attribute of `Settings`."""
        return self.name.replace("-", "_")

    @property
    def env(self) -> str:
        """Its environment variable."""
        return ENV_PREFIX + self.field.upper()

    @property
    def boolean(self) -> bool:
        """Whether the bare flag means true."""
        return self.parse is values.boolean

    def shown(self, text: str) -> str:
        """The value for a message: masked when secret, quoted when it would not be seen."""
        if self.secret:
            return "***"
        return text if text and text.isprintable() and text.strip() == text else repr(text)
