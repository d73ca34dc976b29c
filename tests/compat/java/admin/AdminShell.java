import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs RocketMQ's mqadmin once for each line of its input: words with tabs between them. A line "=" ends each output. */
public class AdminShell {
    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                MQAdminStartup.main0(line.split("\t"), null);
            } catch (Throwable error) {
                error.printStackTrace();
            }
            System.out.println();
            System.out.println("=");
            System.out.flush();
        }
        System.exit(0);
    }
}
