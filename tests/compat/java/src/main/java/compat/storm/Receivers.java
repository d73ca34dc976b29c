package compat.storm;

import compat.Versions;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MQPullConsumerScheduleService;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The ways to consume; each returns what ends it. */
@SuppressWarnings("deprecation")
final class Receivers {
    static final String DEAD_LETTERS = "dead-letters";
    private static final int MAX_RETRIES = 2;
    private static final long HANDLER_MILLIS = 3;
    private static final long INVISIBLE_MILLIS = 10_000;

    private Receivers() {
    }

    @FunctionalInterface
    interface Receiver {
        AutoCloseable start(Setting setting, String consumer) throws Exception;
    }

    private static void got(Setting setting, String consumer, long began, MessageQueue queue, MessageExt message) {
        setting.journal.got(setting.kind, consumer, Setting.key(message), began, queue, message.getQueueOffset(),
            message.getReconsumeTimes());
    }

    private static MessageListenerConcurrently listener(Setting setting, String consumer) {
        return (messages, context) -> {
            long began = Journal.micros();
            messages.forEach(message -> got(setting, consumer, began, context.getMessageQueue(), message));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    private static AutoCloseable started(DefaultMQPushConsumer push) throws Exception {
        push.start();
        return push::shutdown;
    }

    static Receiver push(String expression) {
        return (setting, consumer) -> {
            DefaultMQPushConsumer push = setting.pushConsumer(consumer);
            push.subscribe(setting.topic, expression);
            push.registerMessageListener(listener(setting, consumer));
            return started(push);
        };
    }

    static Receiver sql(String expression) {
        return (setting, consumer) -> {
            DefaultMQPushConsumer push = setting.pushConsumer(consumer);
            push.subscribe(setting.topic, MessageSelector.bySql(expression));
            push.registerMessageListener(listener(setting, consumer));
            return started(push);
        };
    }

    static AutoCloseable batches(Setting setting, String consumer) throws Exception {
        DefaultMQPushConsumer push = setting.pushConsumer(consumer);
        push.subscribe(setting.topic, "*");
        push.setConsumeMessageBatchMaxSize(4);
        push.registerMessageListener(listener(setting, consumer));
        return started(push);
    }

    static AutoCloseable broadcast(Setting setting, String consumer) throws Exception {
        DefaultMQPushConsumer push = setting.pushConsumer(consumer);
        Versions.broadcast(push);
        push.subscribe(setting.topic, "*");
        push.registerMessageListener(listener(setting, consumer));
        return started(push);
    }

    /** The broker hands out messages one by one; which queues to ask it says itself. What comes again is a retry. */
    static AutoCloseable pop(Setting setting, String consumer) throws Exception {
        DefaultMQPushConsumer push = setting.pushConsumer(consumer);
        push.subscribe(setting.topic, "*");
        DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(push, false);
        DefaultMQPushConsumer.class.getMethod("setPopInvisibleTime", long.class).invoke(push, INVISIBLE_MILLIS);
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long began = Journal.micros();
            for (MessageExt message : messages) {
                String topic = message.getReconsumeTimes() > 0 ? "%RETRY%" : setting.topic;
                got(setting, consumer, began, new MessageQueue(topic, message.getBrokerName(), message.getQueueId()),
                    message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return started(push);
    }

    /** A handler lasts long enough for another one of the same queue to be seen beside it. */
    static AutoCloseable orderly(Setting setting, String consumer) throws Exception {
        DefaultMQPushConsumer push = setting.pushConsumer(consumer);
        push.setConsumeThreadMax(4);
        push.setConsumeThreadMin(4);
        push.subscribe(setting.topic, "*");
        push.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            long began = Journal.micros();
            try {
                Thread.sleep(HANDLER_MILLIS);
            } catch (InterruptedException interrupted) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            messages.forEach(message -> got(setting, consumer, began, context.getMessageQueue(), message));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        return started(push);
    }

    /** Every seventh message fails once, every eleventh always; who looks after dead letters stays to the end. */
    static AutoCloseable failing(Setting setting, String consumer) throws Exception {
        if (consumer.equals("first")) {
            DefaultMQPushConsumer undertaker = setting.pushConsumer(DEAD_LETTERS);
            undertaker.setConsumerGroup(setting.group + "-" + DEAD_LETTERS);
            undertaker.subscribe("%DLQ%" + setting.group, "*");
            undertaker.registerMessageListener(listener(setting, DEAD_LETTERS));
            undertaker.start();
        }
        DefaultMQPushConsumer push = setting.pushConsumer(consumer);
        push.setMaxReconsumeTimes(MAX_RETRIES);
        push.subscribe(setting.topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long began = Journal.micros();
            MessageExt message = messages.get(0);
            got(setting, consumer, began, context.getMessageQueue(), message);
            context.setDelayLevelWhenNextConsume(1);
            int number = Setting.number(Setting.key(message));
            boolean fails = number % 11 == 0 || number % 7 == 0 && message.getReconsumeTimes() == 0;
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return started(push);
    }

    static AutoCloseable replying(Setting setting, String consumer) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer(setting.group + "-replier");
        setting.configure(replier, consumer);
        replier.start();
        DefaultMQPushConsumer push = setting.pushConsumer(consumer);
        push.subscribe(setting.topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long began = Journal.micros();
            for (MessageExt message : messages) {
                got(setting, consumer, began, context.getMessageQueue(), message);
                try {
                    replier.send(MessageUtil.createReplyMessage(message, ("re: " + Setting.key(message)).getBytes()));
                } catch (Exception gone) {
                    // The requester sees that no reply came.
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.start();
        return () -> {
            push.shutdown();
            replier.shutdown();
        };
    }

    static AutoCloseable litePull(Setting setting, String consumer) throws Exception {
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer(setting.group);
        setting.configure(lite, consumer);
        lite.setAutoCommit(false);
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        lite.subscribe(setting.topic, "*");
        lite.start();
        AtomicBoolean isPolling = new AtomicBoolean(true);
        Thread poller = new Thread(() -> {
            while (isPolling.get()) {
                List<MessageExt> messages = lite.poll(200);
                long began = Journal.micros();
                for (MessageExt message : messages) {
                    got(setting, consumer, began, new MessageQueue(message.getTopic(), message.getBrokerName(),
                        message.getQueueId()), message);
                }
                lite.commitSync();
            }
        }, "poller-" + consumer);
        poller.start();
        return () -> {
            isPolling.set(false);
            poller.join();
            lite.shutdown();
        };
    }

    /** Pulls of its own for each queue that the group's division gives this consumer. */
    static AutoCloseable pull(Setting setting, String consumer) throws Exception {
        DefaultMQPullConsumer pull = new DefaultMQPullConsumer(setting.group);
        setting.configure(pull, consumer);
        MQPullConsumerScheduleService service = new MQPullConsumerScheduleService(setting.group);
        service.setDefaultMQPullConsumer(pull);
        service.setPullThreadNums(2);
        service.registerPullTaskCallback(setting.topic, (queue, context) -> {
            context.setPullNextDelayTimeMillis(100);
            try {
                long offset = Math.max(0, context.getPullConsumer().fetchConsumeOffset(queue, false));
                PullResult result = context.getPullConsumer().pull(queue, "*", offset, 32);
                long began = Journal.micros();
                if (result.getPullStatus() == PullStatus.FOUND) {
                    result.getMsgFoundList().forEach(message -> got(setting, consumer, began, queue, message));
                }
                context.getPullConsumer().updateConsumeOffset(queue, result.getNextBeginOffset());
            } catch (Exception later) {
                context.setPullNextDelayTimeMillis(300);
            }
        });
        service.start();
        return service::shutdown;
    }
}
