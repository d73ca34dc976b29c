"""Header of SET_COMMITLOG_READ_MODE.  Source: RocketMQ 5.3.3, `FIleReadaheadMode`."""

from sprocket.remoting.headers.base import Header, Int


class SetCommitLogReadModeRequestHeader(Header, kw_only=True, rename={"read_ahead_mode": "READ_AHEAD_MODE"}):
    """SET_COMMITLOG_READ_MODE: 0 is MADV_NORMAL, 1 is MADV_RANDOM."""

    read_ahead_mode: Int | None = None
