import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;

/**
 * Writes or reads a store with Apache RocketMQ's own DefaultMessageStore.
 *
 * <p>With -Dsprocket.crc=true records end with their own CRC, and one without is damage to it.
 *
 * <p>Usage: StoreTool write|batches|read|crash root commitLogFileSize consumeQueueFileSize [messages]. The topic
 * BatchQueue has the queue type BatchCQ; "batches" writes to it alone, and is killed in the end.
 */
public class StoreTool {
    private static final SocketAddress V4 = new InetSocketAddress(address("10.1.2.3"), 5432);
    private static final SocketAddress V6 = new InetSocketAddress(address("fe80:0:0:0:1:2:3:4"), 6543);

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Throwable error) {
            // The store's threads would keep the process alive.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        DefaultMessageStore store = open(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
        if (args[0].equals("read")) {
            read(store);
        } else if (args[0].equals("batches")) {
            writeBatches(store, Integer.parseInt(args[4]));
        } else {
            write(store, Integer.parseInt(args[4]));
        }
        System.out.flush();
        if (args[0].equals("crash") || args[0].equals("batches")) {
            Runtime.getRuntime().halt(0);
        }
        store.shutdown();
    }

    private static DefaultMessageStore open(String root, int commitLog, int consumeQueue) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setMappedFileSizeCommitLog(commitLog);
        config.setMappedFileSizeConsumeQueue(consumeQueue);
        config.setMaxHashSlotNum(10);
        config.setMaxIndexNum(100);
        config.setMessageIndexEnable(false);
        config.setHaListenPort(0);
        config.setDiskFallRecorded(false);
        config.setEnabledAppendPropCRC(Boolean.getBoolean("sprocket.crc"));
        config.setForceVerifyPropCRC(Boolean.getBoolean("sprocket.crc"));
        config.setMapperFileSizeBatchConsumeQueue(46 * 20);
        TopicConfig batches = new TopicConfig("BatchQueue");
        batches.getAttributes().put("queue.type", "BatchCQ");
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put("BatchQueue", batches);
        DefaultMessageStore store = new DefaultMessageStore(config, null, null, new BrokerConfig(), topics);
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ refuses the store");
        }
        store.start();
        return store;
    }

    private static void write(DefaultMessageStore store, int messages) throws Exception {
        String longTopic = "L".repeat(128);
        for (int i = 0; i < messages; i++) {
            MessageExtBrokerInner message = message("Golden-" + i % 2, i % 3, "body " + i + " é€".repeat(i % 11));
            message.setTags("tag" + i % 4);
            message.setKeys("key" + i + " other");
            message.setFlag(i * 7919);
            message.setReconsumeTimes(i % 5);
            switch (i % 12) {
                case 1: message.setTopic(longTopic); break;
                case 2: message.setBornHost(V6); break;
                case 3: message.setStoreHost(V6); break;
                case 4: message.setBornHost(V6); message.setStoreHost(V6); break;
                case 5: transaction(message, MessageSysFlag.TRANSACTION_PREPARED_TYPE, 0); break;
                case 6: transaction(message, MessageSysFlag.TRANSACTION_COMMIT_TYPE, 77); break;
                case 7: transaction(message, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE, 78); break;
                case 8: message.setTopic("SCHEDULE_TOPIC_XXXX"); message.setDelayTimeLevel(1 + i % 20); break;
                case 9: MessageAccessor.clearProperty(message, "TAGS"); break;
                case 10: message.setBody(new byte[0]); break;
                default: break;
            }
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
            check(store.putMessage(message));
            if (i % 25 == 24) {
                check(store.putMessages(batch(i)));
            }
        }
        long end = store.getMaxPhyOffset();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(20);
        }
        System.out.println("END " + end);
    }

    private static void writeBatches(DefaultMessageStore store, int batches) throws Exception {
        for (int i = 0; i < batches; i++) {
            List<Message> messages = new ArrayList<>();
            for (int k = 0; k <= i % 7; k++) {
                messages.add(new Message("BatchQueue", "inBatch", "k" + i, ("batch " + i + " " + k).getBytes()));
            }
            MessageExtBrokerInner batch = message("BatchQueue", i % 2, "");
            batch.setBody(MessageDecoder.encodeMessages(messages));
            batch.setSysFlag(MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG);
            MessageAccessor.putProperty(batch, "INNER_NUM", "" + messages.size());
            if (i % 3 == 0) {
                batch.setTags("tag" + i);
            }
            batch.setPropertiesString(MessageDecoder.messageProperties2String(batch.getProperties()));
            check(store.putMessage(batch));
            Thread.sleep(i % 4);
        }
        long end = store.getMaxPhyOffset();
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(20);
        }
        System.out.println("END " + end);
    }

    private static void transaction(MessageExtBrokerInner message, int type, long offset) {
        message.setSysFlag(MessageSysFlag.resetTransactionValue(message.getSysFlag(), type));
        message.setPreparedTransactionOffset(offset);
    }

    private static MessageExtBrokerInner message(String topic, int queue, String body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        fill(message, topic, queue);
        message.setBody(body.getBytes(StandardCharsets.UTF_8));
        return message;
    }

    private static void fill(MessageExt message, String topic, int queue) {
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBornTimestamp(1600000000000L);
        message.setBornHost(V4);
        message.setStoreHost(new InetSocketAddress(address("10.9.8.7"), 10911));
    }

    private static MessageExtBatch batch(int number) {
        List<Message> messages = new ArrayList<>();
        for (int k = 0; k < 3; k++) {
            Message message = new Message("Batch", "inBatch", "k" + number, ("batch " + number + " " + k).getBytes());
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, "Batch", 0);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return batch;
    }

    private static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put failed: " + result.getPutMessageStatus());
        }
    }

    private static void read(DefaultMessageStore store) {
        ConcurrentMap<String, ConcurrentMap<Integer, ConsumeQueueInterface>> table = store.getConsumeQueueTable();
        for (Map.Entry<String, ConcurrentMap<Integer, ConsumeQueueInterface>> topic : new TreeMap<>(table).entrySet()) {
            for (Map.Entry<Integer, ConsumeQueueInterface> queue : new TreeMap<>(topic.getValue()).entrySet()) {
                readQueue(store, topic.getKey(), queue.getKey(), queue.getValue());
            }
        }
        System.out.println("END " + store.getMaxPhyOffset());
    }

    private static void readQueue(DefaultMessageStore store, String topic, int queueId, ConsumeQueueInterface queue) {
        long min = store.getMinOffsetInQueue(topic, queueId);
        System.out.println(String.join("\t", "QUEUE", topic, "" + queueId, "" + min, "" + queue.getMaxOffsetInQueue()));
        long offset = min;
        while (true) {
            GetMessageResult result = store.getMessage("group", topic, queueId, offset, 32, null);
            if (result.getStatus() != GetMessageStatus.FOUND) {
                break;
            }
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                print(MessageDecoder.decode(buffer, true, false), queue);
            }
            offset = result.getNextBeginOffset();
            result.release();
        }
        long first = store.getEarliestMessageTime(topic, queueId);
        for (long time = first - 1; time < first + 30 && first > 0; time += 3) {
            long lower = store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.LOWER);
            long upper = store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.UPPER);
            System.out.println(String.join("\t", "TIME", topic, "" + queueId, "" + time, "" + lower, "" + upper));
        }
    }

    private static void print(MessageExt m, ConsumeQueueInterface queue) {
        String properties = MessageDecoder.messageProperties2String(new TreeMap<>(m.getProperties()));
        System.out.println(String.join("\t", "MESSAGE", m.getTopic(), "" + m.getQueueId(), "" + m.getQueueOffset(),
            "" + m.getCommitLogOffset(), "" + m.getStoreSize(), "" + m.getSysFlag(), "" + m.getFlag(),
            "" + m.getBornTimestamp(), host(m.getBornHost()), "" + m.getStoreTimestamp(), host(m.getStoreHost()),
            "" + m.getReconsumeTimes(), "" + m.getPreparedTransactionOffset(), "" + m.getBodyCRC(),
            encode(m.getBody()), encode(properties.getBytes(StandardCharsets.UTF_8)),
            "" + queue.get(m.getQueueOffset()).getTagsCode()));
    }

    private static String host(SocketAddress host) {
        InetSocketAddress address = (InetSocketAddress) host;
        byte[] ip = address.getAddress().getAddress();
        return encode(ByteBuffer.allocate(ip.length + 4).put(ip).putInt(address.getPort()).array());
    }

    private static String encode(byte[] bytes) {
        return "b:" + (bytes == null ? "" : Base64.getEncoder().encodeToString(bytes));
    }

    private static InetAddress address(String text) {
        try {
            return InetAddress.getByName(text);
        } catch (java.net.UnknownHostException impossible) {
            throw new IllegalArgumentException(impossible);
        }
    }
}
