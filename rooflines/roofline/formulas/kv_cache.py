"""Writing keys and values into a cache of pages: each token's numbers are read once and written once, at the dtype of the cache.

New tensors may have more rows than slots: a captured graph pads its batch. Numbers become narrower by a scale.
"""

from __future__ import annotations

from rooflines.roofline.formulas.rows import Row


def stored(name: str, cache: str, tokens: str = "slots.n") -> tuple[str, str, str]:
    """FLOPs, bytes read and bytes written of ``tokens`` rows of the tensor ``name`` that go into ``cache``."""
    numbers = f"first({name}, {tokens})"
    return (f"QUANTIZE * {numbers} * ({cache}.item < {name}.item)", f"{numbers} * {name}.item", f"{numbers} * {cache}.item")


def store(schema: str) -> Row:
    """The row of an operator that stores ``key`` and ``value`` of each of the ``slots`` in their caches, perhaps by a scale each."""
    key, value = stored("key", "key_cache"), stored("value", "value_cache")
    scales = "".join(f" + {name}.size" for name in ("k_scale", "v_scale") if name in schema)
    return Row(
        schema,
        other=f"{key[0]} + {value[0]}",
        reads=f"{key[1]} + {value[1]} + slots.size{scales}",
        writes=f"{key[2]} + {value[2]}",
        precision="key",
    )
