package compat;

import java.lang.reflect.Method;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What 4.9 and 5.3 of the client name differently; reached by reflection so that one source serves both. */
public final class Versions {
    private static final int UPDATE_AND_CREATE_TOPIC = 17;

    private Versions() {
    }

    static void createTopic(DefaultMQProducer producer, String topic, int queues) throws Exception {
        String key = producer.getCreateTopicKey();
        for (Method method : DefaultMQProducer.class.getMethods()) {
            if (!method.getName().equals("createTopic")) {
                continue;
            }
            if (method.getParameterCount() == 3) {
                method.invoke(producer, key, topic, queues);
                return;
            }
            if (method.getParameterCount() == 4 && method.getParameterTypes()[3] == Map.class) {
                method.invoke(producer, key, topic, queues, null);
                return;
            }
        }
        throw new AssertionError("this client has no createTopic");
    }

    /** `createTopic` of 4.x knows no attributes, so the request is made here. */
    static void createBatchTopic(DefaultMQProducer producer, String topic, int queues) throws Exception {
        MQClientInstance client = producer.getDefaultMQProducerImpl().getmQClientFactory();
        String broker = producer.fetchPublishMessageQueues("TBW102").get(0).getBrokerName();
        // Only this learns the address of the broker.
        client.updateTopicRouteInfoFromNameServer("TBW102");
        RemotingCommand request = RemotingCommand.createRequestCommand(UPDATE_AND_CREATE_TOPIC, null);
        Map<String, String> fields = Map.of("topic", topic, "defaultTopic", "TBW102", "readQueueNums", "" + queues,
            "writeQueueNums", "" + queues, "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order",
            "false", "attributes", "+queue.type=BatchCQ");
        fields.forEach(request::addExtField);
        RemotingCommand response = client.getMQClientAPIImpl().getRemotingClient().invokeSync(
            client.findBrokerAddressInPublish(broker), request, 10_000);
        Expect.equal(0, response.getCode(), "code of the topic's creation, " + response.getRemark());
    }

    /** Whether this client takes batches in one record apart: since 5.0. */
    static boolean unwrapsBatches() {
        for (Method method : MessageDecoder.class.getMethods()) {
            if (method.getName().equals("decodeMessage") && method.getParameterCount() == 2) {
                return true;
            }
        }
        return false;
    }

    /** `MessageModel` moved from `common` to `remoting` in 5.0. */
    public static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                        return;
                    }
                }
            }
        }
        throw new AssertionError("this client has no BROADCASTING");
    }
}
