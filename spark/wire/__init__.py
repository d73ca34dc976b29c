"""Reading queues over the wire, where no directory of a store can be reached: name servers, brokers, pulls."""
