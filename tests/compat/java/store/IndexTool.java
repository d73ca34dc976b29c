import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.index.QueryOffsetResult;

/**
 * Writes and searches an index with Apache RocketMQ's own classes.
 *
 * <p>Usage: IndexTool write root slots units messages | search root slots units questions |
 * time indexFile slots units keys rounds. A question is a line of topic, key, most messages, begin and end, separated
 * by tabs; its answer is a line of physical offsets, then the index's last time and offset. "time" prints the
 * nanoseconds of each search for each line of the file of keys, which are topic#key.
 */
public class IndexTool {
    private static final SocketAddress V4 = new InetSocketAddress(address(), 5432);

    /** Opens the protected index of the store. */
    private static class Store extends DefaultMessageStore {
        Store(MessageStoreConfig config) throws Exception {
            super(config, null, null, new BrokerConfig(), new ConcurrentHashMap<>());
        }

        QueryOffsetResult find(String topic, String key, int most, long begin, long end) {
            return this.indexService.queryOffset(topic, key, most, begin, end);
        }
    }

    public static void main(String[] args) {
        try {
            if (args[0].equals("time")) {
                time(args);
            } else {
                run(args);
            }
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[1]);
        config.setStorePathCommitLog(args[1] + "/commitlog");
        config.setMappedFileSizeCommitLog(16384);
        config.setMappedFileSizeConsumeQueue(1000);
        config.setMaxHashSlotNum(Integer.parseInt(args[2]));
        config.setMaxIndexNum(Integer.parseInt(args[3]));
        config.setHaListenPort(0);
        config.setDiskFallRecorded(false);
        Store store = new Store(config);
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ refuses the store");
        }
        store.start();
        if (args[0].equals("write")) {
            write(store, Integer.parseInt(args[4]));
        } else {
            search(store, Path.of(args[4]));
        }
        store.shutdown();
    }

    private static void write(Store store, int messages) throws Exception {
        for (int i = 0; i < messages; i++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("Indexed-" + i % 3);
            message.setQueueId(i % 2);
            message.setBody(("body " + i).getBytes());
            message.setBornHost(V4);
            message.setStoreHost(V4);
            message.setBornTimestamp(1_700_000_000_000L + i);
            MessageAccessor.setProperties(message, new HashMap<>());
            message.setPropertiesString(properties(i));
            message.setSysFlag(flags(i));
            PutMessageResult result = store.putMessage(message);
            if (!result.isOk()) {
                throw new IllegalStateException(result.toString());
            }
            if (i % 40 == 39) {
                Thread.sleep(i % 80 == 79 ? 1100 : 40);
            }
        }
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(20);
        }
        System.out.println("END " + store.getMaxPhyOffset());
    }

    private static int flags(int i) {
        switch (i % 17) {
            case 3: return MessageSysFlag.TRANSACTION_PREPARED_TYPE;
            case 4: return MessageSysFlag.TRANSACTION_COMMIT_TYPE;
            case 5: return MessageSysFlag.TRANSACTION_ROLLBACK_TYPE;
            default: return 0;
        }
    }

    private static String properties(int i) {
        String unique = "UNIQ_KEY\u00017F000001" + String.format("%024X", i * 7919L) + "\u0002";
        switch (i % 11) {
            case 0: return unique;
            case 1: return "TAGS\u0001a\u0002";
            case 2: return unique + "KEYS\u0001order-" + i + "\u0002";
            case 3: return "KEYS\u0001order-" + i + "  customer-" + i % 7 + " same \u0002TAGS\u0001b\u0002" + unique;
            case 4: return unique + "KEYS\u0001schl\u00fcssel-" + i + " \u952e\ud83d\ude00\u0002";
            // Hashes of the smallest and of negative numbers: behind "Indexed-0#" they come by themselves.
            case 5: return "KEYS\u0001" + "k".repeat(i) + "\u0002WAIT\u0001true\u0002" + unique;
            case 6: return "KEYS\u0001first\u0002KEYS\u0001second-" + i + "\u0002" + unique;
            case 7: return "KEYS\u0001\u0002XKEYS\u0001no\u0002" + unique + "UNIQ_KEY\u0001\u0002";
            case 8: return unique + "TAGS\u0001KEYS\u0002KEYS\u0001a\u0001b\u0002";
            case 9: return "KEYS\u0001 \u0002Z\u0001" + "z".repeat(i * 3) + "\u0002" + unique;
            default: return unique + "KEYS\u0001same\u0002";
        }
    }

    private static void search(Store store, Path questions) throws Exception {
        for (String line : Files.readAllLines(questions)) {
            String[] words = line.split("\t", -1);
            QueryOffsetResult found = store.find(words[0], words[1], Integer.parseInt(words[2]),
                Long.parseLong(words[3]), Long.parseLong(words[4]));
            String offsets = found.getPhyOffsets().stream().map(String::valueOf).collect(Collectors.joining(" "));
            System.out.println("FOUND\t" + offsets + "\t" + found.getIndexLastUpdateTimestamp() + "\t"
                + found.getIndexLastUpdatePhyoffset());
        }
        System.out.println("END " + store.getMaxPhyOffset());
    }

    private static void time(String[] args) throws Exception {
        IndexFile file = new IndexFile(args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]), 0, 0);
        file.load();
        List<String> keys = Files.readAllLines(Path.of(args[4]));
        int rounds = Integer.parseInt(args[5]);
        for (int round = 0; round < rounds; round++) {
            long[] nanos = new long[keys.size()];
            long found = 0;
            for (int i = 0; i < nanos.length; i++) {
                List<Long> offsets = new ArrayList<>();
                long start = System.nanoTime();
                file.selectPhyOffset(offsets, keys.get(i), 64, 0, Long.MAX_VALUE);
                nanos[i] = System.nanoTime() - start;
                found += offsets.size();
            }
            Arrays.sort(nanos);
            System.out.println("TIME\t" + nanos[nanos.length / 2] + "\t" + nanos[nanos.length * 99 / 100] + "\t" + found);
        }
    }

    private static InetAddress address() {
        try {
            return InetAddress.getByName("10.1.2.3");
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
