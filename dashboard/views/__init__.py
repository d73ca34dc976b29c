"""What pages show, as pure functions of what servers answered."""
