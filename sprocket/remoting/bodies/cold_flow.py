"""Body of the answer to GET_COLD_DATA_FLOW_CTR_INFO.

Source: RocketMQ 5.3.3, `ColdDataCgCtrService.getColdDataFlowCtrInfo`, `AccAndTimeStamp`.
"""

import msgspec


class ColdReadsInfo(msgspec.Struct, rename="camel"):
    """Cold bytes that one group has read since the last round; times in ms."""

    cold_acc: int
    create_time_mills: int
    last_cold_read_time_mills: int


class ColdFlowInfo(msgspec.Struct, rename="camel"):
    """Thresholds and reads, bytes; `config_table` and `runtime_table` are by group."""

    cg_cold_read_threshold: int
    config_table: dict[str, int]
    global_acc: int
    global_cold_read_threshold: int
    runtime_table: dict[str, ColdReadsInfo]
