import java.nio.ByteBuffer;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.timer.Slot;
import org.apache.rocketmq.store.timer.TimerLog;
import org.apache.rocketmq.store.timer.TimerWheel;

/**
 * Reads a timer wheel and its log with Apache RocketMQ's own classes.
 *
 * <p>Usage: TimerTool root slotsTotal precisionMs timerLogFileSize fromMs toMs. Prints each slot in use, and its chain of
 * units from new to old.
 */
public class TimerTool {
    public static void main(String[] args) throws Exception {
        int slotsTotal = Integer.parseInt(args[1]);
        int precisionMs = Integer.parseInt(args[2]);
        int fileSize = Integer.parseInt(args[3]);
        TimerWheel wheel = new TimerWheel(args[0] + "/timerwheel", slotsTotal, precisionMs);
        TimerLog log = new TimerLog(args[0] + "/timerlog", fileSize);
        log.load();
        long from = Long.parseLong(args[4]);
        long to = Long.parseLong(args[5]);
        System.out.println("ALL " + wheel.getAllNum(from));
        for (long time = from; time < to; time += precisionMs) {
            Slot slot = wheel.getSlot(time);
            if (slot.timeMs == -1) {
                continue;
            }
            System.out.println("SLOT " + slot.timeMs + " " + slot.firstPos + " " + slot.lastPos + " " + slot.num);
            for (long position = slot.lastPos; position != -1; ) {
                SelectMappedBufferResult found = log.getTimerMessage(position);
                ByteBuffer unit = found.getByteBuffer();
                int size = unit.getInt();
                long previous = unit.getLong();
                System.out.println("UNIT " + position + " " + size + " " + previous + " " + unit.getInt() + " "
                    + unit.getLong() + " " + unit.getInt() + " " + unit.getLong() + " " + unit.getInt() + " "
                    + unit.getInt() + " " + unit.getLong());
                found.release();
                position = previous;
            }
        }
        System.out.println("END");
        System.exit(0);
    }
}
