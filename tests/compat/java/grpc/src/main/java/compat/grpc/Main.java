package compat.grpc;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Runs scenarios: endpoints, TLS, and the names; one line of result for each. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        String account = System.getProperty("compat.accessKey");
        var scenarios = new Scenarios(
            arguments[0], Boolean.parseBoolean(arguments[1]), account, System.getProperty("compat.secretKey")).all();
        String run = arguments[2];
        List<String> names = List.of(arguments).subList(3, arguments.length);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        for (String name : names) {
            pool.execute(() -> report(name, run, scenarios));
        }
        pool.shutdown();
        pool.awaitTermination(240, TimeUnit.SECONDS);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void report(String name, String run, Map<String, Scenarios.Scenario> scenarios) {
        long begin = System.currentTimeMillis();
        String verdict = "PASS";
        String message = "";
        try {
            scenarios.get(name).run(run + "-" + name, run + "-" + name + "-group");
        } catch (Throwable error) {
            verdict = "FAIL";
            message = String.valueOf(error).replaceAll("[\\r\\n\\t]+", " ");
        }
        long millis = System.currentTimeMillis() - begin;
        System.out.printf("RESULT\t%s\t%s\t%d\t%s%n", name, verdict, millis, message);
    }
}
