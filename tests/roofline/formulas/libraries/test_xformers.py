"""xformers' operators apart from attention: closed forms by hand at odd shapes."""

from __future__ import annotations

from tests.roofline.formulas.libraries.calls import bf16, figures, int64


def test_rows_by_index():
    call = (bf16(7, 5, 11), int64(3), bf16(3, 5, 11), bf16(11), 1.5)
    assert figures("_ScaledIndexAdd", *call) == (0, 165 * 3, 24 + 330 + 22 + 330, 330, "bf16")
    assert figures("_ScaledIndexAddBackward", (bf16(7, 5, 11),), *call) == (0, 165 * 4, 330 + 24 + 22 + 330, 660, "bf16")
    call = (bf16(7, 11), bf16(9, 13), int64(3), int64(4))
    rows = (3 * 11 + 4 * 13) * 2
    assert figures("_IndexSelectCat", *call) == (0, 0, rows + 56, rows, None)
    assert figures("_IndexSelectCatBackward", (bf16(85),), *call) == (0, 0, rows + 56, (77 + 117) * 2, None)
