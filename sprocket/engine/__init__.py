"""The compiled engine: twins of Python code on hot paths, and the choice between both.  See docs/engine.md."""
