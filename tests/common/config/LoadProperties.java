import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;

/** Reads texts (i32 length, bytes) and answers what java.util.Properties makes of each, as UTF-16. */
public class LoadProperties {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        while (true) {
            int length;
            try {
                length = in.readInt();
            } catch (java.io.EOFException end) {
                return;
            }
            byte[] text = new byte[length];
            in.readFully(text);
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(text));
                out.writeInt(properties.size());
                for (Map.Entry<Object, Object> entry : properties.entrySet()) {
                    write(out, (String) entry.getKey());
                    write(out, (String) entry.getValue());
                }
            } catch (IllegalArgumentException malformed) {
                out.writeInt(-1);
            }
            out.flush();
        }
    }

    private static void write(DataOutputStream out, String text) throws Exception {
        out.writeInt(text.length());
        for (int i = 0; i < text.length(); i++) {
            out.writeChar(text.charAt(i));
        }
    }
}
