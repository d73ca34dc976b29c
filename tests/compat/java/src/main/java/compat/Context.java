package compat;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** One scenario's clients, all shut down at its end, with a topic and a group of its own. */
final class Context implements AutoCloseable {
    static final long PATIENCE_MILLIS = 40_000;
    static final MessageQueueSelector BY_QUEUE_ID = (queues, message, queueId) -> {
        for (MessageQueue queue : queues) {
            if (queue.getQueueId() == (Integer) queueId) {
                return queue;
            }
        }
        throw new AssertionError("no queue " + queueId + " in " + queues);
    };
    // Retry topics come into being after a consumer's start; the stock 30 s until it learns of them only costs time.
    private static final int ROUTE_REFRESH_MILLIS = 1_000;
    private static final AtomicInteger INSTANCES = new AtomicInteger();

    final String nameServers;
    final String topic;
    final String group;
    private final Deque<Runnable> shutdowns = new ArrayDeque<>();
    private DefaultMQProducer producer;

    Context(String nameServers, String run, String scenario) {
        this.nameServers = nameServers;
        this.topic = "T-" + run + "-" + scenario;
        this.group = "G-" + run + "-" + scenario;
    }

    DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            producer = new DefaultMQProducer(group + "-producer", signing());
            producer.setNamesrvAddr(nameServers);
            inNamespace(producer);
            producer.setInstanceName(instance());
            producer.setSendMsgTimeout(10_000);
            producer.start();
            shutdowns.push(producer::shutdown);
        }
        return producer;
    }

    TransactionMQProducer transactionProducer(TransactionListener listener) throws MQClientException {
        TransactionMQProducer transactional = new TransactionMQProducer(group + "-transactions", signing());
        transactional.setNamesrvAddr(nameServers);
        inNamespace(transactional);
        transactional.setInstanceName(instance());
        transactional.setSendMsgTimeout(10_000);
        transactional.setTransactionListener(listener);
        transactional.start();
        shutdowns.push(transactional::shutdown);
        return transactional;
    }

    /** Creates the scenario's topic on every broker and waits until the name server routes it. */
    void createTopic(int queuesPerBroker) throws Exception {
        String elsewhere = System.getProperty("compat.createAt");
        if (elsewhere == null) {
            Versions.createTopic(producer(), topic, queuesPerBroker);
        } else {
            // Proxies create no topics.
            DefaultMQProducer creator = new DefaultMQProducer(group + "-creator", signing());
            creator.setNamesrvAddr(elsewhere);
            inNamespace(creator);
            creator.setInstanceName(instance());
            creator.start();
            Versions.createTopic(creator, topic, queuesPerBroker);
            creator.shutdown();
        }
        awaitRoute(queuesPerBroker);
    }

    void awaitRoute(int queuesPerBroker) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MILLIS;
        while (true) {
            try {
                if (producer().fetchPublishMessageQueues(topic).size() >= queuesPerBroker) {
                    return;
                }
            } catch (MQClientException notYetRouted) {
                Expect.that(System.currentTimeMillis() < deadline, "topic never routed: " + notYetRouted.getMessage());
            }
            Thread.sleep(50);
        }
    }

    List<MessageQueue> queues() throws MQClientException {
        List<MessageQueue> queues = new ArrayList<>(producer().fetchPublishMessageQueues(topic));
        queues.sort(null);
        return queues;
    }

    Message message(String tag, String body) {
        return new Message(topic, tag, "key-" + body, body.getBytes(StandardCharsets.UTF_8));
    }

    SendResult send(Message message) throws Exception {
        SendResult result = producer().send(message);
        Expect.equal(SendStatus.SEND_OK, result.getSendStatus(), "send status");
        return result;
    }

    /** Sends `prefix-0` to `prefix-(count-1)`, spread over the topic's queues by the client. */
    void sendNumbered(String prefix, String tag, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            send(message(tag, prefix + "-" + i));
        }
    }

    /** A push consumer that is not yet subscribed or started; close() shuts it down. */
    DefaultMQPushConsumer pushConsumer() {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, signing(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServers);
        inNamespace(consumer);
        consumer.setInstanceName(instance());
        consumer.setPollNameServerInterval(ROUTE_REFRESH_MILLIS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        shutdowns.push(consumer::shutdown);
        return consumer;
    }

    DefaultMQPushConsumer startPush(String expression, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = pushConsumer();
        consumer.subscribe(topic, expression);
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    DefaultMQPushConsumer startPush(String expression, Inbox inbox) throws Exception {
        return startPush(expression, into(inbox));
    }

    static MessageListenerConcurrently into(Inbox inbox) {
        return (messages, context) -> {
            inbox.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    @SuppressWarnings("deprecation")
    DefaultMQPullConsumer pullConsumer() throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, signing());
        consumer.setNamesrvAddr(nameServers);
        inNamespace(consumer);
        consumer.setInstanceName(instance());
        consumer.start();
        shutdowns.push(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer litePullConsumer() {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, signing());
        consumer.setNamesrvAddr(nameServers);
        inNamespace(consumer);
        consumer.setInstanceName(instance());
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        shutdowns.push(consumer::shutdown);
        return consumer;
    }

    @Override
    public void close() {
        while (!shutdowns.isEmpty()) {
            shutdowns.pop().run();
        }
    }

    /** Signs requests for the account of the system properties; null without one. */
    static RPCHook signing() {
        String accessKey = System.getProperty("compat.accessKey");
        if (accessKey == null) {
            return null;
        }
        try {
            // In another jar before 5.3.3, which is not on the class path.
            Class<?> credentials = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
            Object account = credentials.getConstructor(String.class, String.class)
                    .newInstance(accessKey, System.getProperty("compat.secretKey"));
            return (RPCHook) Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook")
                    .getConstructor(credentials).newInstance(account);
        } catch (ReflectiveOperationException unsupported) {
            throw new AssertionError(unsupported);
        }
    }

    /** Puts a client into the namespace of the system property, if there is one. */
    private static void inNamespace(ClientConfig client) {
        String namespace = System.getProperty("compat.namespace");
        if (namespace != null) {
            client.setNamespace(namespace);
        }
    }

    /** Clients of one name in one process share their connections, so each gets a name of its own. */
    private static String instance() {
        return "compat-" + INSTANCES.incrementAndGet();
    }
}
