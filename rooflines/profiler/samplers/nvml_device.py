"""Asking NVML about one device: what it does not support is asked once, what one may not read is said once, a lost GPU ends it all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from rooflines.device_specs.nvml import field_number, find_gpu, is_slice, start_nvml
from rooflines.errors import DeviceError

# A lost GPU may answer UNKNOWN to most queries, and a removed slice does not answer at all. After this many
# such readings in a row it is gone.
LAST_READINGS = 3

T = TypeVar("T")
# What nvmlDeviceGetFieldValues is asked for: a field, or one with its scope.
Field = int | tuple[int, int]


class NvmlDevice:
    """One GPU or MIG slice. ``identity`` is its UUID or its NVML index, ``name`` what its samples call it.

    Raises DeviceError when NVML or the GPU is not there, and from every
    question once the GPU is lost. Each needs one ``close``.
    """

    def __init__(self, identity: str | int, name: str) -> None:
        self.nvml = start_nvml()
        self.name = name
        self._denied: dict[str, list[str]] = {}  # what may not be read, by the error
        self._refused: set[str] = set()
        self._answered = self._unknown = self._failed_readings = 0
        self._error: Any = None
        try:
            self.handle = find_gpu(self.nvml, identity)
            self.is_slice = is_slice(self.nvml, self.handle)
        except self.nvml.NVMLError as error:
            self.nvml.nvmlShutdown()
            raise DeviceError(f"GPU {identity!r} ({name}) not found by NVML: {error}.") from None

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence about all that this user may not read; none where there is nothing."""
        return tuple(
            f"Not readable on {self.name} by this user ({error}): {', '.join(subjects)}." for error, subjects in self._denied.items()
        )

    def close(self) -> None:
        self.nvml.nvmlShutdown()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Surrounds the questions of one reading. Raises DeviceError after several that had no answer, or fewer than UNKNOWNs."""
        self._answered = self._unknown = 0
        yield
        failed = not self._answered or self._unknown > self._answered
        self._failed_readings = self._failed_readings + 1 if failed else 0
        if self._failed_readings >= LAST_READINGS:
            raise self._lost(self._error)

    def ask(self, subject: str, *questions: Callable[[], T]) -> T | None:
        """The answer to the first of ``questions`` that this device and driver support; None when there is none, or none just now."""
        denied = None
        for number, question in enumerate(questions):
            key = f"{subject} {number}"
            if key in self._refused:
                continue
            try:
                answer = question()
            except AttributeError:  # this pynvml is older than the question
                self._refused.add(key)
            except self.nvml.NVMLError as error:
                if not self._refuses(key, error):
                    return None
                denied = error if isinstance(error, self.nvml.NVMLError_NoPermission) else denied
            else:
                self._answered += 1
                return answer
        if denied is not None:
            self._note_denied(subject, denied)
        return None

    def fields(self, wanted: Mapping[str, Field]) -> dict[str, float | int]:
        """The numbers of those of the ``wanted`` fields that this device has, in NVML's units, by one call."""
        asked = {subject: field for subject, field in wanted.items() if subject not in self._refused}
        if not asked:
            return {}
        answers = self.ask("field values", lambda: self.nvml.nvmlDeviceGetFieldValues(self.handle, list(asked.values())))
        found = {}
        for subject, answer in zip(asked, answers or (), strict=False):
            if answer.nvmlReturn == self.nvml.NVML_SUCCESS:
                self._answered += 1
                found[subject] = field_number(answer)
                continue
            error = self.nvml.NVMLError(answer.nvmlReturn)
            if self._refuses(subject, error) and isinstance(error, self.nvml.NVMLError_NoPermission):
                self._note_denied(subject, error)
        return found

    def _refuses(self, key: str, error: Any) -> bool:
        """Whether ``error`` means that there will never be an answer."""
        nvml = self.nvml
        self._error = error
        if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED):
            raise self._lost(error) from None
        if error.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NO_PERMISSION,
        ):
            self._refused.add(key)
            return True
        self._unknown += error.value == nvml.NVML_ERROR_UNKNOWN
        return False

    def _note_denied(self, subject: str, error: Any) -> None:
        self._denied.setdefault(str(error), []).append(subject)

    def _lost(self, error: Any) -> DeviceError:
        return DeviceError(f"sampling of {self.name} stopped: {error}.", hint="See nvidia-smi and the kernel log.")
