"""A broker group under controllers, on a network of namespaces: kills, pauses, partitions."""
