"""What every test shares: hypothesis profiles, and no event loop made by accident.

Fixtures live beside the tests that use them.
"""

import asyncio
import os

from hypothesis import settings

# Deterministic, so that a red run stays red; no deadline, because a busy machine is not a fault.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
# HYPOTHESIS_PROFILE=search looks for new counter-examples at every run.
settings.register_profile("search", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# looptime asks for the current event loop around plain tests too, and asyncio would make one that
# nobody closes. Saying once that there is none turns that into an error which looptime expects.
asyncio.set_event_loop(None)
