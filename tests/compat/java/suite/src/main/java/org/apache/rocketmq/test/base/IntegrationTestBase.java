package org.apache.rocketmq.test.base;

import java.io.File;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import sprocket.suite.LiveBrokerConfig;
import sprocket.suite.RemoteBroker;
import sprocket.suite.RemoteNameServer;

/** Takes the place of the class of this name in RocketMQ's tests: the servers that it starts are Sprocket's. */
public class IntegrationTestBase {
    private static final int WAIT_S = 120;
    private static int brokers;

    public static NamesrvController createAndStartNamesrv() {
        try {
            RemoteNameServer server = new RemoteNameServer(directory("namesrv"));
            server.start();
            return server;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    public static BrokerController createAndStartBroker(String nameServer) {
        BrokerConfig config = new LiveBrokerConfig();
        config.setBrokerName("broker-" + ++brokers);
        config.setBrokerIP1("127.0.0.1");
        config.setNamesrvAddr(nameServer);
        config.setEnablePropertyFilter(true);
        config.setRecallMessageEnable(true);
        config.setLoadBalancePollNameServerInterval(500);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(directory(config.getBrokerName()).getPath());
        store.setMappedFileSizeCommitLog(100 << 20);
        store.setMaxTransferCountOnMessageInMemory(1024);
        return createAndStartBroker(store, config);
    }

    public static BrokerController createAndStartBroker(MessageStoreConfig store, BrokerConfig config) {
        try {
            RemoteBroker broker = new RemoteBroker(config, store);
            broker.start();
            return broker;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    public static void createAndStartProxy(String nameServer) {
        // There is none; no test that runs here asks it for anything.
    }

    public static boolean initTopic(String topic, String nameServer, String where, int queues, CQType cqType,
        TopicMessageType type) {
        return initTopic(topic, nameServer, where, queues, cqType, type, null);
    }

    public static boolean initTopic(String topic, String nameServer, String where, int queues, CQType cqType,
        TopicMessageType type, Long liteExpiration) {
        Map<String, String> attributes = new HashMap<>();
        if (cqType != CQType.SimpleCQ) {
            attributes.put("+queue.type", cqType.toString());
        }
        if (type != TopicMessageType.NORMAL) {
            attributes.put("+message.type", type.toString());
        }
        return MQAdminTestUtils.createTopic(nameServer, where, topic, queues, attributes, WAIT_S);
    }

    public static boolean initTopic(String topic, String nameServer, String where, int queues, CQType cqType) {
        return initTopic(topic, nameServer, where, queues, cqType, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(String topic, String nameServer, String where, CQType cqType) {
        return initTopic(topic, nameServer, where, BaseConf.QUEUE_NUMBERS, cqType, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(String topic, String nameServer, String where, TopicMessageType type) {
        return initTopic(topic, nameServer, where, BaseConf.QUEUE_NUMBERS, CQType.SimpleCQ, type);
    }

    public static void initMQAdmin(String nameServer) {
        try {
            MQAdminTestUtils.startAdmin(nameServer);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static File directory(String name) {
        try {
            return Files.createTempDirectory(name).toFile();
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }
}
