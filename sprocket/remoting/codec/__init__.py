"""Serializations of headers and bodies: JSON, ROCKETMQ, fastjson's dialect."""
