package compat;

import java.util.Objects;

/** Assertions whose message says what was wanted and what came. */
final class Expect {
    private Expect() {
    }

    static void equal(Object wanted, Object got, String what) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError(what + ": wanted " + wanted + ", got " + got);
        }
    }

    static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void between(long low, long high, long got, String what) {
        that(got >= low && got <= high, what + ": wanted " + low + " to " + high + ", got " + got);
    }
}
