"""Three controllers in virtual time, and what brokers and operators ask of them."""
