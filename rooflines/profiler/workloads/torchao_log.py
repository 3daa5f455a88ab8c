"""What torchao logs about its own code, which no user can change. Transformers imports torchao, too."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_torchao() -> Iterator[None]:
    """Without the warnings that torchao and torch log when torchao is imported or exports a network."""
    loggers = [logging.getLogger(name) for name in ("torch.utils._pytree", "torchao")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
