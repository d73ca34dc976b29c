"""Connected producers and consumers, and the queues they lock."""
