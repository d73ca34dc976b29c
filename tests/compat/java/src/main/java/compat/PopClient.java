package compat;

import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Popping, which only clients since 5.0 can: by reflection, so that the sources compile with 4.9 too. */
final class PopClient {
    /** The property of each message that was popped. */
    static final String POP_CK = "POP_CK";
    private static final int SET_MESSAGE_REQUEST_MODE = 401;

    private PopClient() {
    }

    /** Whether this client can pop at all. */
    static boolean exists() {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setClientRebalance")) {
                return true;
            }
        }
        return false;
    }

    /** A push consumer, not yet started, that lets the broker decide from which queues it takes, and how. */
    static DefaultMQPushConsumer consumer(Context context, long invisibleMillis) throws Exception {
        DefaultMQPushConsumer consumer = context.pushConsumer();
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class).invoke(consumer, invisibleMillis);
        return consumer;
    }

    /** The queues of the scenario's topic that the consumer pops from, as broker:queue. */
    static Set<String> queues(DefaultMQPushConsumer consumer, String topic) throws Exception {
        RebalanceImpl rebalance = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl();
        Map<?, ?> table = (Map<?, ?>) RebalanceImpl.class.getMethod("getPopProcessQueueTable").invoke(rebalance);
        Set<String> queues = new TreeSet<>();
        for (Object key : table.keySet()) {
            MessageQueue queue = (MessageQueue) key;
            if (queue.getTopic().equals(topic)) {
                queues.add(queue.getBrokerName() + ":" + queue.getQueueId());
            }
        }
        return queues;
    }

    /** Tells every broker of the scenario's topic how its group takes it: PULL or POP. */
    static void setMode(Context context, String mode, int shareQueueNum) throws Exception {
        MQClientInstance client = context.producer().getDefaultMQProducerImpl().getmQClientFactory();
        client.updateTopicRouteInfoFromNameServer(context.topic);
        Set<String> brokers = new TreeSet<>();
        for (MessageQueue queue : context.queues()) {
            brokers.add(queue.getBrokerName());
        }
        String body = String.format("{\"topic\":\"%s\",\"consumerGroup\":\"%s\",\"mode\":\"%s\",\"popShareQueueNum\":%d}",
            context.topic, context.group, mode, shareQueueNum);
        for (String broker : brokers) {
            RemotingCommand request = RemotingCommand.createRequestCommand(SET_MESSAGE_REQUEST_MODE, null);
            request.setBody(body.getBytes(StandardCharsets.UTF_8));
            RemotingCommand response = client.getMQClientAPIImpl().getRemotingClient().invokeSync(
                client.findBrokerAddressInPublish(broker), request, 10_000);
            Expect.equal(0, response.getCode(), "code of the change of mode, " + response.getRemark());
        }
    }
}
