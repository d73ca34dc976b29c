"""Commands for messages: lookups, sends, traces, and files of compacted topics."""
