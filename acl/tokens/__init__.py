"""Tokens: JSON Web Tokens (RFC 7519) as credentials of ACL 2.0, in place of a user's password.

A client presents its token as the access key (remoting; the secret key is ignored, as with RocketMQ on Pulsar), or as a
bearer token (gRPC).  Who may do what is decided by the same policies as for users with a password.
"""
