"""The one place where the scanner of records chooses between compiled functions and arrays.

Both have the same signatures and give the same records; `tests/store/scan/test_twins.py` compares them.
"""

from sprocket.engine.choice import native

if native("store.scan.scan_native") is None:
    from store.scan.log_walk import chain
    from store.scan.record_batches import batches
    from store.scan.record_crc import claimed_crcs, crcs_hold
    from store.scan.tags_scan import tags_codes_of
else:
    from store.scan.compiled import batches, chain, claimed_crcs, crcs_hold, tags_codes_of

__all__ = ["batches", "chain", "claimed_crcs", "crcs_hold", "tags_codes_of"]
