"""Names of the versions of clients.  Source: RocketMQ 5.3.3, `MQVersion`."""


def version_text(version: int) -> str:
    """Return ``V5_3_3`` for a client's version number, which is its index in `MQVersion`.

    V4_0_0 is 213; from there to V5_9_9 each version follows its snapshot.  Other numbers are returned as digits.
    """
    steps = version - 213
    if not 0 <= steps < 399:
        return str(version)
    number, snapshot = 400 + (steps + 1) // 2, "_SNAPSHOT" if steps % 2 else ""
    return f"V{number // 100}_{number // 10 % 10}_{number % 10}{snapshot}"
