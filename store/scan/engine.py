"""The one place where the scanner of records chooses between compiled functions and plain ones.

Both have the same signatures and give the same records; `tests/store/scan/test_twins.py` compares them.
"""

from sprocket.engine.choice import native

if native("store.scan.scan_native") is None:
    from store.scan.plain import MAX_BATCH_RECORDS, batches, chain, claimed_crcs, crcs_hold, tags_codes_of
else:
    from store.scan.compiled import MAX_BATCH_RECORDS, batches, chain, claimed_crcs, crcs_hold, tags_codes_of

__all__ = ["MAX_BATCH_RECORDS", "batches", "chain", "claimed_crcs", "crcs_hold", "tags_codes_of"]
