import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Sends one message and consumes it, both traced; prints its id. Arguments: name server, topic. */
public class Traced {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PJava", true, null);
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        String id = producer.send(new Message(arguments[1], "TagA", "k1 k2", "body".getBytes())).getMsgId();
        CountDownLatch got = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GJava", true, null);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        got.await(60, TimeUnit.SECONDS);
        Thread.sleep(6000);  // traces leave every 5 s
        System.out.println("ID " + id);
        consumer.shutdown();
        producer.shutdown();
    }
}
