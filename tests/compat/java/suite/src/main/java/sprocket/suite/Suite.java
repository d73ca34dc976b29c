package sprocket.suite;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** {@code Suite <file of results> <class>...}: runs the classes; one line per test, PASS or FAIL, its name, and why. */
public final class Suite {
    private Suite() {
    }

    public static void main(String[] arguments) throws Exception {
        try (PrintWriter results = new PrintWriter(arguments[0], StandardCharsets.UTF_8)) {
            for (int i = 1; i < arguments.length; i++) {
                JUnitCore core = new JUnitCore();
                core.addListener(new Listener(results));
                core.run(Class.forName(arguments[i]));
            }
        }
        System.exit(0);
    }

    private static final class Listener extends RunListener {
        private final PrintWriter results;
        private boolean failed;

        Listener(PrintWriter results) {
            this.results = results;
        }

        @Override
        public void testStarted(Description test) {
            failed = false;
        }

        @Override
        public void testFailure(Failure failure) {
            failed = true;
            String why = String.valueOf(failure.getException()).replaceAll("\\s+", " ");
            say("FAIL", failure.getDescription(), why.substring(0, Math.min(300, why.length())));
        }

        @Override
        public void testFinished(Description test) {
            if (!failed) {
                say("PASS", test, "");
            }
        }

        private void say(String verdict, Description test, String why) {
            String name = test.getTestClass().getSimpleName() + "." + test.getMethodName();
            results.println(verdict + "\t" + name + "\t" + why);
            results.flush();
        }
    }
}
