"""A client's view of the cluster: name servers, routes, connections and heartbeats."""
