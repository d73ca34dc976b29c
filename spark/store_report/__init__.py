"""What a store holds, as one page: who sent how much, how late it was, who consumes it, and what went wrong."""
