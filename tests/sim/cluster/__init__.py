"""A simulated cluster: brokers, clients, network, disks and time in one thread, drawn from one seed."""
