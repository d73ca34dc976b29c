"""The store on a disk in memory that can lose power at any point."""
