import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;

/**
 * Writes and reads an epochFileCheckpoint with Apache RocketMQ's own class.
 *
 * <p>Usage: EpochTool write|read path [epoch-start ...]. Prints the epochs that a new instance reads from the file.
 */
public class EpochTool {
    public static void main(String[] args) {
        if (args[0].equals("write")) {
            EpochFileCache cache = new EpochFileCache(args[1]);
            for (int at = 2; at < args.length; at++) {
                String[] parts = args[at].split("-");
                cache.appendEntry(new EpochEntry(Integer.parseInt(parts[0]), Long.parseLong(parts[1])));
            }
        }
        EpochFileCache found = new EpochFileCache(args[1]);
        if (!found.initCacheFromFile()) {
            System.out.println("REFUSED");
            return;
        }
        List<String> lines = new ArrayList<>();
        for (EpochEntry entry : found.getAllEntries()) {
            lines.add(entry.getEpoch() + "-" + entry.getStartOffset());
        }
        System.out.println("EPOCHS " + String.join(" ", lines));
    }
}
