import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A stock producer and a stock consumer with default timeouts. Prints SENT or GOT, the body and milliseconds. */
public class Orders {
    // Not the thread's interrupt: a send that is under way turns it into an error of its own, and it is gone.
    private static volatile boolean isEnding;

    public static void main(String[] arguments) throws Exception {
        String nameServers = arguments[0];
        String topic = arguments[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("readers");
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say("GOT", new String(message.getBody()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("writers");
        producer.setNamesrvAddr(nameServers);
        producer.start();
        Thread writer = new Thread(() -> write(producer, topic));
        writer.setDaemon(true);
        writer.start();
        // Ends with its input: first the writer, then, after another line, everything.
        System.in.read();
        isEnding = true;
        writer.join();
        say("DONE", "-");
        System.in.read();
        System.exit(0);
    }

    private static void write(DefaultMQProducer producer, String topic) {
        for (int number = 0; !isEnding; number++) {
            String body = "order-" + number;
            try {
                SendResult result = producer.send(new Message(topic, body.getBytes()));
                say(result.getSendStatus() == SendStatus.SEND_OK ? "SENT" : "WEAK", body);
                Thread.sleep(20);
            } catch (InterruptedException end) {
                return;
            } catch (Exception error) {
                say("FAILED", body);
            }
        }
    }

    private static synchronized void say(String word, String body) {
        System.out.println(word + "\t" + body + "\t" + System.currentTimeMillis());
        System.out.flush();
    }
}
