"""What every layer may use.  A closed list: clock, errors, limits, invariant, atomic_file, properties, config."""
