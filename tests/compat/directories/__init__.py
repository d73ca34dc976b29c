"""Data directories that change hands between Apache RocketMQ and Sprocket."""
