package compat.storm;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The ways to send. What a message is like follows from its number, so that a reader of the journal knows it, too. */
final class Senders {
    private static final int BATCH = 8;
    private static final int SHARDS = 16;
    private static final long REPLY_MILLIS = 15_000;

    private Senders() {
    }

    @FunctionalInterface
    interface Sender {
        void send(DefaultMQProducer producer, Setting setting, int number) throws Exception;
    }

    @FunctionalInterface
    private interface Call {
        SendResult run() throws Exception;
    }

    private static void report(Setting setting, int number, boolean isPlaced, Call call) {
        long began = Journal.micros();
        try {
            SendResult result = call.run();
            acknowledged(setting, setting.key(number), began, isPlaced, result, 0);
        } catch (Exception failure) {
            setting.journal.unsure(setting.kind, setting.key(number), began, failure);
        }
    }

    private static void acknowledged(Setting setting, String key, long began, boolean isPlaced, SendResult result,
        int index) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            setting.journal.sent(setting.kind, key, began, isPlaced ? result.getMessageQueue() : null,
                result.getQueueOffset() + index);
        } else {
            setting.journal.unsure(setting.kind, key, began, new Exception(result.getSendStatus().toString()));
        }
    }

    static void sync(DefaultMQProducer producer, Setting setting, int number) {
        report(setting, number, true, () -> producer.send(setting.message(number)));
    }

    static void tagged(DefaultMQProducer producer, Setting setting, int number) {
        report(setting, number, true, () -> producer.send(setting.message(number, "ABC".substring(number % 3, number % 3 + 1))));
    }

    static void withProperty(DefaultMQProducer producer, Setting setting, int number) {
        Message message = setting.message(number);
        message.putUserProperty("a", String.valueOf(number % 10));
        report(setting, number, true, () -> producer.send(message));
    }

    static void async(DefaultMQProducer producer, Setting setting, int number) throws Exception {
        long began = Journal.micros();
        String key = setting.key(number);
        try {
            producer.send(setting.message(number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    acknowledged(setting, key, began, true, result, 0);
                }

                @Override
                public void onException(Throwable failure) {
                    setting.journal.unsure(setting.kind, key, began, failure);
                }
            });
        } catch (Exception failure) {
            setting.journal.unsure(setting.kind, key, began, failure);
        }
    }

    /** Nobody acknowledges these; the checks ask for those that were sent while all was well. */
    static void oneway(DefaultMQProducer producer, Setting setting, int number) throws Exception {
        long began = Journal.micros();
        Exception reason = new Exception("oneway");
        try {
            producer.sendOneway(setting.message(number));
        } catch (Exception failure) {
            reason = failure;
        }
        setting.journal.unsure(setting.kind, setting.key(number), began, reason);
    }

    /** Level 1, a second, and level 2, five seconds. */
    static void delayLevel(DefaultMQProducer producer, Setting setting, int number) {
        Message message = setting.message(number);
        message.setDelayTimeLevel(1 + number % 2);
        report(setting, number, false, () -> producer.send(message));
    }

    /** Between one second and four, in three forms; only clients from 5.0 on have them. */
    static void delayTime(DefaultMQProducer producer, Setting setting, int number) throws Exception {
        Message message = setting.message(number);
        long delay = 1_000 + 1_000 * (number % 4);
        String[] forms = {"setDelayTimeMs", "setDelayTimeSec", "setDeliverTimeMs"};
        long[] values = {delay, delay / 1_000, System.currentTimeMillis() + delay};
        int form = number % 3;
        Message.class.getMethod(forms[form], long.class).invoke(message, values[form]);
        report(setting, number, false, () -> producer.send(message));
    }

    static void batch(DefaultMQProducer producer, Setting setting, int number) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            messages.add(setting.message(number * BATCH + i));
        }
        long began = Journal.micros();
        try {
            SendResult result = producer.send(messages);
            for (int i = 0; i < BATCH; i++) {
                acknowledged(setting, setting.key(number * BATCH + i), began, true, result, i);
            }
        } catch (Exception failure) {
            for (int i = 0; i < BATCH; i++) {
                setting.journal.unsure(setting.kind, setting.key(number * BATCH + i), began, failure);
            }
        }
    }

    /** Each shard keeps to one queue, also while its broker is away. */
    static Sender sharded() {
        List<MessageQueue> queues = new ArrayList<>();
        return (producer, setting, number) -> {
            if (queues.isEmpty()) {
                queues.addAll(producer.fetchPublishMessageQueues(setting.topic));
                queues.sort(null);
            }
            MessageQueue queue = queues.get(number % SHARDS % queues.size());
            report(setting, number, true, () -> producer.send(setting.message(number), queue));
        };
    }

    static void request(DefaultMQProducer producer, Setting setting, int number) {
        String key = setting.key(number);
        long began = Journal.micros();
        try {
            // The other form of 5.3.3 gives up as soon as the request is sent; here that is a success without a message.
            producer.request(setting.message(number), new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null) {
                        setting.journal.reply(setting.kind, key, began, new String(reply.getBody()));
                    }
                }

                @Override
                public void onException(Throwable failure) {
                    setting.journal.reply(setting.kind, key, began, String.valueOf(failure));
                }
            }, REPLY_MILLIS);
        } catch (Exception failure) {
            setting.journal.reply(setting.kind, key, began, String.valueOf(failure));
        }
        setting.journal.unsure(setting.kind, key, began, new Exception("the reply tells"));
    }

    static void transaction(DefaultMQProducer producer, Setting setting, int number) {
        report(setting, number, false, () -> producer.sendMessageInTransaction(setting.message(number), null));
    }

    /** Of four transactions one commits, one rolls back, one commits when asked, one rolls back when asked. */
    static TransactionMQProducer transactional(Setting setting) {
        TransactionMQProducer producer = new TransactionMQProducer(setting.group + "-producer");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                int way = Setting.number(message.getKeys()) % 4;
                return way == 0 ? LocalTransactionState.COMMIT_MESSAGE
                    : way == 1 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String key = Setting.key(message);
                setting.journal.asked(setting.kind, key);
                return Setting.number(key) % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE
                    : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        return producer;
    }
}
