"""Capacity provider that turns BigFleet's six RPCs into Azure virtual machines.

Only the version lives here, so that importing the package costs nothing.
"""

__version__ = "0.1.0"
