"""What every layer may use.  A closed list: clock, errors, limits, invariant, atomic_file, table_saver, next_turn,
properties, config."""
