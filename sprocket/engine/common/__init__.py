"""What all compiled modules share."""
