package compat;

import java.util.Locale;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends and pops without end, while somebody else stops brokers: `PopStream <name servers> <run> <consumers>
 * <period ms>`. Prints `SENT number broker` for each message that was taken, and `GOT
 * number broker times` for each delivery. Stops sending at the first byte of its standard input, and ends with it.
 */
public final class PopStream {
    private static final long INVISIBLE_MILLIS = 5_000;
    private static final int QUEUES = 4;

    private static volatile boolean isSending = true;

    private PopStream() {
    }

    public static void main(String[] args) throws Exception {
        Context context = new Context(args[0], args[1], "pop-stream");
        context.createTopic(QUEUES);
        PopClient.setMode(context, "POP", 0);
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            start(context);
        }
        new Thread(() -> send(context, Long.parseLong(args[3]))).start();
        while (System.in.read() >= 0) {
            isSending = false;
        }
        Runtime.getRuntime().halt(0);
    }

    private static void start(Context context) throws Exception {
        DefaultMQPushConsumer consumer = PopClient.consumer(context, INVISIBLE_MILLIS);
        consumer.subscribe(context.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, consume) -> {
            for (MessageExt message : messages) {
                say("GOT %s %s %d", Inbox.text(message), message.getBrokerName(), message.getReconsumeTimes());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private static void send(Context context, long periodMillis) {
        try {
            DefaultMQProducer producer = context.producer();
            producer.setRetryTimesWhenSendFailed(5);
            producer.setSendLatencyFaultEnable(true);
            for (int number = 0; isSending; number++) {
                try {
                    SendResult result = producer.send(context.message("TagS", "" + number));
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        say("SENT %d %s", number, result.getMessageQueue().getBrokerName());
                    }
                } catch (Exception notTaken) {
                    say("FAILED %d %s", number, notTaken.getClass().getSimpleName());
                }
                Thread.sleep(periodMillis);
            }
        } catch (Exception failure) {
            say("ENDED %s", failure);
        }
    }

    private static synchronized void say(String format, Object... values) {
        System.out.printf(Locale.ROOT, format + "%n", values);
        System.out.flush();
    }
}
