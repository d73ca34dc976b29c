"""The one place where the index chooses between compiled functions and arrays.

Both have the same signatures and give the same entries; `tests/store/index/test_key_scan.py` compares them.
"""

from sprocket.engine.choice import native

if native("store.index.key_scan_native") is None:
    from store.index.key_scan import entries_of
else:
    from store.index.compiled import entries_of

__all__ = ["entries_of"]
