import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Reads a topic in all ways that a client has; arguments: name servers, topic, number of messages, account. */
@SuppressWarnings("deprecation")
public final class ArchiveConsumer {
    public static void main(String[] arguments) throws Exception {
        String namesrv = arguments[0], topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        RPCHook hook = arguments.length < 5
            ? null : new AclClientRPCHook(new SessionCredentials(arguments[3], arguments[4]));
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer("java-pullers", hook);
        puller.setNamesrvAddr(namesrv);
        puller.start();
        TreeSet<String> pulled = new TreeSet<>();
        MessageExt third = null;
        for (MessageQueue queue : puller.fetchSubscribeMessageQueues(topic)) {
            long end = puller.maxOffset(queue);
            for (long at = puller.minOffset(queue); at < end; ) {
                PullResult result = puller.pull(queue, "*", at, 32);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> pulled.add(text(message)));
                    third = result.getMsgFoundList().get(2);
                }
                at = result.getNextBeginOffset();
            }
        }
        show("pulled", pulled.size());
        show("by id", text(puller.viewMessage(topic, third.getMsgId())).equals(text(third)));
        long now = System.currentTimeMillis();
        List<MessageExt> found = puller.queryMessage(topic, third.getKeys(), 32, 0, now).getMessageList();
        show("by key", found.size() == 1 && text(found.get(0)).equals(text(third)));
        puller.shutdown();
        DefaultMQPushConsumer pusher = new DefaultMQPushConsumer(
            "java-pushers", hook, new AllocateMessageQueueAveragely());
        pusher.setNamesrvAddr(namesrv);
        pusher.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        pusher.subscribe(topic, "*");
        ConcurrentSkipListSet<String> pushed = new ConcurrentSkipListSet<>();
        pusher.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> pushed.add(text(message)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        pusher.start();
        long deadline = System.currentTimeMillis() + 60_000;
        while (pushed.size() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(20);
        }
        show("pushed", pushed.size());
        pusher.shutdown();
        DefaultMQProducer producer = new DefaultMQProducer("java-writers", hook);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        try {
            producer.send(new Message(topic, "x".getBytes(StandardCharsets.UTF_8)));
        } catch (Exception refused) {
            show("refused", refused.toString());
        }
        producer.shutdown();
        System.exit(0);
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static void show(String name, Object value) {
        System.out.println(name + "\t" + value);
    }
}
