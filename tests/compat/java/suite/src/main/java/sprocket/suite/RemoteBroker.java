package sprocket.suite;

import java.io.File;
import java.lang.reflect.Proxy;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.out.BrokerOuterAPI;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.client.exception.OffsetNotFoundException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What tests take for a broker of theirs; it is never started in this process.  What they look up inside of it is
 * asked over the wire where a request for it exists, and refused by UnsupportedOperationException elsewhere.
 */
public class RemoteBroker extends BrokerController {
    private static final long TIMEOUT_MS = 30_000;
    private final BrokerConfig config;
    private final MessageStoreConfig store;
    private final BrokerOuterAPI outer = new BrokerOuterAPI(new NettyClientConfig(), new AuthConfig()) {
        @Override
        public void refreshMetadata() {
            // The process does that by itself.
        }
    };
    private ServerProcess process;
    private DefaultMQAdminExt admin;

    public RemoteBroker(BrokerConfig config, MessageStoreConfig store) {
        super(config, new NettyServerConfig(), new NettyClientConfig(), store);
        this.config = config;
        this.store = store;
    }

    @Override
    public void start() throws Exception {
        config.setListenPort(ServerProcess.freePort());
        store.setHaListenPort(ServerProcess.freePort());
        Properties properties = new Properties();
        ServerProcess.putChanges(config, new BrokerConfig(), properties);
        ServerProcess.putChanges(store, new MessageStoreConfig(), properties);
        properties.setProperty("listenPort", String.valueOf(config.getListenPort()));
        process = new ServerProcess("broker", new File(store.getStorePathRootDir()), properties, config.getListenPort());
        admin = new DefaultMQAdminExt(TIMEOUT_MS);
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.setNamesrvAddr(config.getNamesrvAddr());
        admin.start();
        if (config instanceof LiveBrokerConfig) {
            ((LiveBrokerConfig) config).attach(this);
        }
    }

    @Override
    public void shutdown() {
        process.stop();
        admin.shutdown();
    }

    void tell(String key, Object value) {
        Properties properties = new Properties();
        properties.setProperty(key, String.valueOf(value));
        try {
            admin.updateBrokerConfig(getBrokerAddr(), properties);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public String getBrokerAddr() {
        return config == null ? super.getBrokerAddr() : config.getBrokerIP1() + ":" + config.getListenPort();
    }

    @Override
    public BrokerOuterAPI getBrokerOuterAPI() {
        return outer;
    }

    @Override
    public MessageStore getMessageStore() {
        return (MessageStore) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {MessageStore.class},
            (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "dispatchBehindBytes":
                        return 0L;
                    case "getMaxOffsetInQueue":
                        return api().getMaxOffset(getBrokerAddr(), queue(arguments), TIMEOUT_MS);
                    case "getMinOffsetInQueue":
                        return api().getMinOffset(getBrokerAddr(), queue(arguments), TIMEOUT_MS);
                    default:
                        throw new UnsupportedOperationException("inside the broker: " + method);
                }
            });
    }

    private MessageQueue queue(Object[] topicAndId) {
        return new MessageQueue((String) topicAndId[0], config.getBrokerName(), (Integer) topicAndId[1]);
    }

    private MQClientAPIImpl api() {
        return admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
    }

    @Override
    public TopicConfigManager getTopicConfigManager() {
        if (admin == null) {
            return super.getTopicConfigManager();
        }
        return new TopicConfigManager(this, false) {
            @Override
            public ConcurrentMap<String, TopicConfig> getTopicConfigTable() {
                try {
                    return admin.getAllTopicConfig(getBrokerAddr(), TIMEOUT_MS).getTopicConfigTable();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }
        };
    }

    @Override
    public ConsumerOffsetManager getConsumerOffsetManager() {
        if (admin == null) {
            return super.getConsumerOffsetManager();
        }
        return new ConsumerOffsetManager(this) {
            @Override
            public long queryOffset(String group, String topic, int queueId) {
                QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
                header.setConsumerGroup(group);
                header.setTopic(topic);
                header.setQueueId(queueId);
                header.setSetZeroIfNotFound(false);
                try {
                    return api().queryConsumerOffset(getBrokerAddr(), header, TIMEOUT_MS);
                } catch (OffsetNotFoundException e) {
                    return -1;
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }

            @Override
            public long queryPullOffset(String group, String topic, int queueId) {
                try {
                    return admin.examineConsumeStats(getBrokerAddr(), group, topic, TIMEOUT_MS).getOffsetTable()
                        .entrySet().stream().filter(entry -> entry.getKey().getQueueId() == queueId)
                        .mapToLong(entry -> entry.getValue().getPullOffset()).findFirst().orElse(-1);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }
        };
    }

    @Override
    public SubscriptionGroupManager getSubscriptionGroupManager() {
        if (admin == null) {
            return super.getSubscriptionGroupManager();
        }
        return new SubscriptionGroupManager(this, false) {
            @Override
            public SubscriptionGroupConfig findSubscriptionGroupConfig(String group) {
                SubscriptionGroupConfig plain = new SubscriptionGroupConfig();
                plain.setGroupName(group);
                return plain;
            }

            @Override
            public void updateSubscriptionGroupConfig(SubscriptionGroupConfig changed) {
                try {
                    admin.createAndUpdateSubscriptionGroupConfig(getBrokerAddr(), changed);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }
        };
    }
}
