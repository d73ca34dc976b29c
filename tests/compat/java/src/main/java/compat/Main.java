package compat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs scenarios against a cluster: `Main <name servers> <run id> <at once> all|<scenario>...`, or `Main list`.
 * Prints one line per scenario, `RESULT name PASS|FAIL millis message` separated by tabs, and exits with 0 when
 * all have passed and 1 otherwise.
 */
public final class Main {
    private static final long LIMIT_SECONDS = 90;

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, Scenario> scenarios = scenarios();
        if (args.length == 1 && args[0].equals("list")) {
            scenarios.keySet().forEach(System.out::println);
            return;
        }
        if (args.length < 4) {
            System.err.println("usage: Main <name servers> <run id> <at once> all|<scenario>... or Main list");
            System.exit(2);
        }
        List<String> chosen = args[3].equals("all") ? new ArrayList<>(scenarios.keySet())
            : Arrays.asList(args).subList(3, args.length);
        for (String name : chosen) {
            if (!scenarios.containsKey(name)) {
                System.err.println("no scenario " + name + "; there are " + scenarios.keySet());
                System.exit(2);
            }
        }
        ExecutorService workers = Executors.newFixedThreadPool(Integer.parseInt(args[2]));
        ExecutorService bodies = Executors.newCachedThreadPool();
        List<Future<Boolean>> outcomes = new ArrayList<>();
        for (String name : chosen) {
            outcomes.add(workers.submit(() -> report(bodies, name, scenarios.get(name), args[0], args[1])));
        }
        boolean passed = true;
        for (Future<Boolean> outcome : outcomes) {
            passed &= outcome.get();
        }
        System.exit(passed ? 0 : 1);
    }

    private static Map<String, Scenario> scenarios() {
        Map<String, Scenario> scenarios = new TreeMap<>();
        scenarios.putAll(SendScenarios.all());
        scenarios.putAll(PushScenarios.all());
        scenarios.putAll(RetryScenarios.all());
        scenarios.putAll(GroupScenarios.all());
        scenarios.putAll(PullScenarios.all());
        scenarios.putAll(QueryScenarios.all());
        scenarios.putAll(TransactionScenarios.all());
        scenarios.putAll(ReplyScenarios.all());
        scenarios.putAll(FilterScenarios.all());
        scenarios.putAll(PopScenarios.all());
        scenarios.putAll(TimerScenarios.all());
        return scenarios;
    }

    private static boolean report(ExecutorService bodies, String name, Scenario scenario, String nameServers, String run) {
        long started = System.currentTimeMillis();
        Future<?> body = bodies.submit(() -> {
            try (Context context = new Context(nameServers, run, name)) {
                scenario.run(context);
            }
            return null;
        });
        String problem = null;
        try {
            body.get(LIMIT_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException tooLong) {
            problem = "not done in " + LIMIT_SECONDS + " s";
        } catch (Exception failure) {
            problem = describe(failure);
        }
        long millis = System.currentTimeMillis() - started;
        String verdict = problem == null ? "PASS" : "FAIL";
        synchronized (Main.class) {
            System.out.printf("RESULT\t%s\t%s\t%d\t%s%n", name, verdict, millis, problem == null ? "" : problem);
            System.out.flush();
        }
        return problem == null;
    }

    private static String describe(Throwable failure) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ").append(cause);
            for (StackTraceElement frame : cause.getStackTrace()) {
                if (frame.getClassName().startsWith("compat.") && !frame.getClassName().equals("compat.Expect")) {
                    text.append(" at ").append(frame.getFileName()).append(':').append(frame.getLineNumber());
                    break;
                }
            }
        }
        return text.toString().replaceAll("\\s+", " ");
    }
}
