"""Tests of sprocket.grpc_wire."""
