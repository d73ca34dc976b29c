package compat.storm;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Where one kind of traffic goes, and clients for it. Clients of one name share connections and threads. */
final class Setting {
    private static final int OFTEN_MILLIS = 1_000;
    private static final int PATIENT_MILLIS = 20_000;

    final String nameServers;
    final String kind;
    final String topic;
    final String group;
    final Journal journal;

    Setting(String nameServers, String run, String kind, Journal journal) {
        this.nameServers = nameServers;
        this.kind = kind;
        this.topic = "S-" + run + "-" + kind;
        this.group = "SG-" + run + "-" + kind;
        this.journal = journal;
    }

    String key(int number) {
        return String.format("%s-%06d", kind, number);
    }

    Message message(int number) {
        return message(number, "T");
    }

    Message message(int number, String tag) {
        return new Message(topic, tag, key(number), key(number).getBytes(StandardCharsets.UTF_8));
    }

    static String key(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    /** The number at the end of a key. */
    static int number(String key) {
        return Integer.parseInt(key.substring(key.lastIndexOf('-') + 1));
    }

    /** One attempt per send, so that what is acknowledged stands at one place. */
    <P extends DefaultMQProducer> P started(P producer) throws MQClientException {
        configure(producer, "producers");
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        return producer;
    }

    DefaultMQPushConsumer pushConsumer(String consumer) {
        DefaultMQPushConsumer push = new DefaultMQPushConsumer(group);
        configure(push, consumer);
        push.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        push.setConsumeThreadMin(2);
        push.setConsumeThreadMax(2);
        return push;
    }

    /** Stock clients learn within 30 s that a broker is back, and it of them; here they ask more often. */
    void configure(ClientConfig client, String name) {
        client.setNamesrvAddr(nameServers);
        client.setInstanceName(topic.substring(0, topic.length() - kind.length()) + name);
        client.setPollNameServerInterval(OFTEN_MILLIS);
        client.setHeartbeatBrokerInterval(OFTEN_MILLIS);
        client.setPersistConsumerOffsetInterval(OFTEN_MILLIS);
        // A consumer whose first route takes longer does not start; machines are slow at times.
        client.setMqClientApiTimeout(PATIENT_MILLIS);
    }
}
