"""Marks that tests of several folders share."""

import pytest
import torch

# The formulas' tables are those of this version; an older torch lacks some operators, arguments and fake tensors.
recent_torch = pytest.mark.skipif(torch.__version__ < "2.14", reason="needs operators as torch 2.14 has them")
