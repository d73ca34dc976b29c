package compat;

import java.lang.reflect.Method;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** What 4.9 and 5.3 of the client name differently; reached by reflection so that one source serves both. */
final class Versions {
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

    /** `MessageModel` moved from `common` to `remoting` in 5.0. */
    static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
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
