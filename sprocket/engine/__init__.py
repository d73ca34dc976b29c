"""The compiled engine: the choice between it and pure Python, and what its modules share.  See docs/engine.md."""
