"""What histories of clients are held against."""
