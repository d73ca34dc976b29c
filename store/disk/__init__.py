"""Access to files: the disk seam, mapped files, preallocation, and bounds on open files."""
