package sprocket.suite;

import org.apache.rocketmq.common.BrokerConfig;

/** Settings that tests change while the broker runs are sent to it with UPDATE_BROKER_CONFIG. */
public class LiveBrokerConfig extends BrokerConfig {
    private transient RemoteBroker broker;

    void attach(RemoteBroker running) {
        broker = running;
    }

    private void tell(String key, Object value) {
        if (broker != null) {
            broker.tell(key, value);
        }
    }

    @Override
    public void setEnablePopBufferMerge(boolean value) {
        super.setEnablePopBufferMerge(value);
        tell("enablePopBufferMerge", value);
    }

    @Override
    public void setUseServerSideResetOffset(boolean value) {
        super.setUseServerSideResetOffset(value);
        tell("useServerSideResetOffset", value);
    }

    @Override
    public void setEnableNotifyAfterPopOrderLockRelease(boolean value) {
        super.setEnableNotifyAfterPopOrderLockRelease(value);
        tell("enableNotifyAfterPopOrderLockRelease", value);
    }

    @Override
    public void setLongPollingEnable(boolean value) {
        super.setLongPollingEnable(value);
        tell("longPollingEnable", value);
    }

    @Override
    public void setShortPollingTimeMills(long value) {
        super.setShortPollingTimeMills(value);
        tell("shortPollingTimeMills", value);
    }

    @Override
    public void setPriorityOrderAsc(boolean value) {
        super.setPriorityOrderAsc(value);
        tell("priorityOrderAsc", value);
    }

    @Override
    public void setUseSeparateRetryQueue(boolean value) {
        super.setUseSeparateRetryQueue(value);
        tell("useSeparateRetryQueue", value);
    }

    @Override
    public void setPopFromRetryProbabilityForPriority(int value) {
        super.setPopFromRetryProbabilityForPriority(value);
        tell("popFromRetryProbabilityForPriority", value);
    }
}
