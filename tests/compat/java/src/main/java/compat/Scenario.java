package compat;

/** One self-checking use of the client: it returns when all is as expected and throws otherwise. */
@FunctionalInterface
interface Scenario {
    void run(Context context) throws Exception;
}
