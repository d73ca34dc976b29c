import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * What RocketMQ's own SQL92 filter says: reads lines of an expression and a message's encoded properties, both in
 * Base64 with a tab between, and prints REFUSED, TRUE, FALSE, NULL or ERROR for each.
 */
public final class Verdicts {
    private Verdicts() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answer = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] fields = line.split("\t", -1);
            answer.append(verdict(text(fields[0]), text(fields[1]))).append('\n');
        }
        System.out.print(answer);
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static String verdict(String expression, String properties) {
        BooleanExpression compiled;
        try {
            compiled = SelectorParser.parse(expression);
        } catch (Throwable refused) {
            return "REFUSED";
        }
        try {
            Map<String, String> map = MessageDecoder.string2messageProperties(properties);
            Object value = compiled.evaluate(new MessageEvaluationContext(map));
            return value == null ? "NULL" : value.toString().toUpperCase();
        } catch (Throwable error) {
            return "ERROR";
        }
    }
}
