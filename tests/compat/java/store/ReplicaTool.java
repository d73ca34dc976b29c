import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * A store of Apache RocketMQ in controller mode, whose role the lines of its input decide. It answers each with one line.
 *
 * <p>Usage: ReplicaTool root haPort brokerId [asyncLearner|syncFromLastFile|allAckInSyncStateSet ...]. Lines: master EPOCH, slave EPOCH HOST:PORT, sync ID ...,
 * put COUNT TEXT, ask, end.
 */
public class ReplicaTool {
    private static final MessageStoreConfig CONFIG = new MessageStoreConfig();

    public static void main(String[] args) throws Exception {
        long brokerId = Long.parseLong(args[2]);
        DefaultMessageStore store = open(args[0], Integer.parseInt(args[1]), brokerId, args);
        AutoSwitchHAService ha = (AutoSwitchHAService) store.getHaService();
        ha.setLocalBrokerId(brokerId);
        System.out.println("OK ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null && !line.equals("end"); line = input.readLine()) {
            System.out.println("OK " + run(store, ha, brokerId, line.split(" ")));
        }
        store.shutdown();
        System.out.println("OK ended");
        System.exit(0);
    }

    private static Object run(DefaultMessageStore store, AutoSwitchHAService ha, long brokerId, String[] words)
        throws Exception {
        switch (words[0]) {
            case "master":
                CONFIG.setBrokerRole(BrokerRole.SYNC_MASTER);
                ha.setSyncStateSet(new HashSet<>(Arrays.asList(brokerId)));
                return ha.changeToMaster(Integer.parseInt(words[1]));
            case "slave":
                CONFIG.setBrokerRole(BrokerRole.SLAVE);
                boolean changed = ha.changeToSlave("", Integer.parseInt(words[1]), brokerId);
                ha.updateHaMasterAddress(words[2]);
                return changed;
            case "sync":
                Set<Long> members = new HashSet<>();
                for (int at = 1; at < words.length; at++) {
                    members.add(Long.parseLong(words[at]));
                }
                ha.setSyncStateSet(members);
                return members;
            case "put":
                return put(store, Integer.parseInt(words[1]), words[2]);
            default:
                List<String> epochs = new ArrayList<>();
                for (EpochEntry entry : ha.getEpochEntries()) {
                    epochs.add(entry.getEpoch() + "-" + entry.getStartOffset());
                }
                // End, confirm offset, end of what consumers see of the first queue, epochs.
                return store.getMaxPhyOffset() + " " + store.getConfirmOffset() + " "
                    + store.getMaxOffsetInQueue("Orders", 0) + " " + String.join(",", epochs) + " "
                    + ha.getSyncStateSet();
        }
    }

    private static String put(DefaultMessageStore store, int count, String text) throws Exception {
        List<String> statuses = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic("Orders");
            message.setQueueId(0);
            message.setBody((text + number).getBytes());
            message.setKeys(text + number);
            message.setBornTimestamp(System.currentTimeMillis());
            message.setStoreHost(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 8123));
            message.setBornHost(new InetSocketAddress(InetAddress.getByName("127.0.0.1"), 0));
            String status = store.putMessage(message).getPutMessageStatus().toString();
            if (!statuses.contains(status)) {
                statuses.add(status);
            }
        }
        return String.join(",", statuses);
    }

    private static DefaultMessageStore open(String root, int port, long brokerId, String[] args) throws Exception {
        CONFIG.setStorePathRootDir(root);
        CONFIG.setStorePathCommitLog(root + "/commitlog");
        CONFIG.setStorePathEpochFile(root + "/epochFileCheckpoint");
        CONFIG.setHaListenPort(port);
        CONFIG.setMappedFileSizeCommitLog(16 * 1024);
        CONFIG.setMaxMessageSize(8 * 1024);
        CONFIG.setHaSendHeartbeatInterval(1000);
        CONFIG.setBrokerRole(BrokerRole.SLAVE);
        CONFIG.setMaxHashSlotNum(1000);
        CONFIG.setMaxIndexNum(4000);
        for (int at = 3; at < args.length; at++) {
            switch (args[at]) {
                case "asyncLearner":
                    CONFIG.setAsyncLearner(true);
                    break;
                case "syncFromLastFile":
                    CONFIG.setSyncFromLastFile(true);
                    break;
                default:
                    CONFIG.setAllAckInSyncStateSet(true);
            }
        }
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerId(brokerId);
        broker.setEnableControllerMode(true);
        DefaultMessageStore store = new DefaultMessageStore(CONFIG, new BrokerStatsManager("c", false), null, broker,
            new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("not loaded");
        }
        store.start();
        return store;
    }
}
