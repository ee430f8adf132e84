import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after another in one JVM, since starting one costs seconds.
 *
 * A line of input is {@code class TAB argument TAB …}. The answer is a line with the exit code and the numbers of bytes
 * that the tool wrote to its standard output and to its standard error, and then those bytes.
 */
public final class ToolServer {
    private static final PrintStream ANSWERS = System.out;

    private static Integer exitCode;

    /** Ends a tool where it would end the JVM. Some catch it as they catch everything, so the first code is kept. */
    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] ignored) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Exit.setExitProcedure((code, message) -> {
            if (message != null) System.err.println(message);
            if (exitCode == null) exitCode = code;
            throw new Exited();
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream complained = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            byte[] output = printed.toByteArray();
            byte[] errors = complained.toByteArray();  // A thread that the tool left behind may go on complaining.
            ANSWERS.print(code + " " + output.length + " " + errors.length + "\n");
            ANSWERS.write(output);
            ANSWERS.write(errors);
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String tool, String[] arguments) {
        exitCode = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException missing) {
            missing.printStackTrace();
            return 1;
        }
        return exitCode == null ? 0 : exitCode;
    }
}
