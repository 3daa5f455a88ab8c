"""What holds for the whole suite."""

from __future__ import annotations

from hypothesis import settings

from tests.profiler.samplers.nvml_driver.fixtures import nvml_library, stand_in, stand_in_here  # noqa: F401 (fixtures, for every test)

# Shared machines take seconds for what usually takes a millisecond; how long an example takes proves nothing.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
