import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Opens a store with Apache RocketMQ's own DefaultMessageStore and prints how long its load, recovery included, took.
 *
 * <p>Usage: RecoveryTool root commitLogFileSize consumeQueueFileSize. Prints "LOADED milliseconds endOffset".
 */
public class RecoveryTool {
    public static void main(String[] args) {
        try {
            MessageStoreConfig config = new MessageStoreConfig();
            config.setStorePathRootDir(args[0]);
            config.setStorePathCommitLog(args[0] + "/commitlog");
            config.setMappedFileSizeCommitLog(Integer.parseInt(args[1]));
            config.setMappedFileSizeConsumeQueue(Integer.parseInt(args[2]));
            config.setMessageIndexEnable(false);
            config.setTimerWheelEnable(false);
            config.setHaListenPort(0);
            config.setDiskFallRecorded(false);
            DefaultMessageStore store =
                new DefaultMessageStore(config, null, null, new BrokerConfig(), new ConcurrentHashMap<>());
            long started = System.nanoTime();
            boolean loaded = store.load();
            long millis = (System.nanoTime() - started) / 1_000_000;
            if (!loaded) {
                throw new IllegalStateException("RocketMQ refuses the store");
            }
            System.out.println("LOADED " + millis + " " + store.getMaxPhyOffset());
            System.out.flush();
            // Nothing is to be flushed or cleaned: the next run begins with what this one found.
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }
}
