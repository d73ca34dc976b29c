"""Random commands about a few groups, as brokers, operators and controllers send them."""

from hypothesis import strategies as st

from controller.state.commands import (
    AcceptTerms,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    LiveReplica,
    Read,
    RegisterBroker,
)

NAMES = st.sampled_from(["broker-a", "broker-b", "brøker-ç"])
CLUSTERS = st.sampled_from(["c", "c", "c", "other"])
IDS = st.integers(1, 5)
ADDRESSES = st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"])
SETS = st.lists(IDS, max_size=5).map(tuple)
EPOCHS = st.integers(0, 4)
LIVE = st.lists(
    st.builds(LiveReplica, IDS, ADDRESSES, EPOCHS, st.integers(-1, 9), st.integers(0, 2)),
    max_size=5,
    unique_by=lambda one: one.broker_id,
).map(tuple)

COMMANDS: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        ApplyBrokerId, name=NAMES, cluster=CLUSTERS, broker_id=IDS, check_code=st.builds("{};{}".format, ADDRESSES, IDS)
    ),
    st.builds(RegisterBroker, name=NAMES, cluster=CLUSTERS, broker_id=IDS, address=ADDRESSES, live=LIVE),
    st.builds(
        ElectMaster,
        name=NAMES,
        cluster=st.sampled_from(["", "c", "other"]),
        broker_id=st.one_of(st.none(), st.just(-1), IDS),
        is_designated=st.booleans(),
        allows_unclean=st.booleans(),
        live=LIVE,
        is_exact=st.booleans(),
        master_epoch=EPOCHS,
        sync_state_set_epoch=EPOCHS,
        has_resigned=st.booleans(),
    ),
    st.builds(
        AcceptTerms,
        name=NAMES,
        master_id=IDS,
        master_epoch=EPOCHS,
        required_acks=st.integers(0, 4),
        lease_ms=st.integers(1, 3),
    ),
    st.builds(
        AlterSyncStateSet,
        name=NAMES,
        master_id=st.one_of(st.none(), IDS),
        master_epoch=EPOCHS,
        sync_state_set=SETS,
        sync_state_set_epoch=EPOCHS,
        live=SETS,
    ),
    st.builds(CleanBrokerData, name=NAMES, cluster=CLUSTERS, broker_ids=SETS, includes_living=st.booleans(), live=SETS),
    st.builds(Read, name=NAMES),
)
