"""Compiled paths of whole requests to a broker: sends, pulls, pops, acknowledgements, ends of transactions."""
