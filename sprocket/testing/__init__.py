"""The broker in a user's tests."""
