"""What the kernels of a broker share: parts and kinds of records, their properties, the choice of records."""
