"""Access to files: the interface `Disk`, mapped files, preallocation, and a limit of open files."""
