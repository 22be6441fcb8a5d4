import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs main classes of Apache Kafka one after another in one JVM, because starting a JVM takes
 * longer than most of them. One line of JSON comes in for each, {"main", "arguments", "text"}, and
 * one goes out, {"code", "out", "err"}.
 *
 * The tools are not changed: they end through Kafka's own Exit, which lets itself be replaced, and
 * their shutdown hooks run when they return. The first exit counts, and what a tool says about it
 * is dropped: some catch everything, also what the exit throws here, and exit again. The streams are replaced once, before any tool is
 * loaded, because Scala's Console and log4j keep the ones that they find.
 */
public final class ToolDriver {
    private static volatile OutputStream out = OutputStream.nullOutputStream();
    private static volatile OutputStream err = OutputStream.nullOutputStream();
    private static volatile InputStream in = InputStream.nullInputStream();
    private static final List<Runnable> hooks = new ArrayList<>();
    private static volatile Integer exitCode;

    /** What a tool's exit becomes. */
    private static final class Exited extends Error {
        Exited(int code) {
            super("exit " + code, null, false, false);
        }
    }

    public static void main(String[] words) throws Exception {
        InputStream requests = System.in;
        PrintStream answers = System.out;
        replaceStreams();
        Exit.Procedure leave = (code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            if (exitCode == null) {
                exitCode = code;
                mute();
            }
            throw new Exited(code);
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        ObjectMapper mapper = new ObjectMapper();
        java.io.BufferedReader lines = new java.io.BufferedReader(
            new java.io.InputStreamReader(requests, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(mapper.writeValueAsString(run(mapper, mapper.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode run(ObjectMapper mapper, JsonNode request) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        out = printed;
        err = complained;
        in = new ByteArrayInputStream(
            request.path("text").asText("").getBytes(StandardCharsets.UTF_8));
        List<String> arguments = new ArrayList<>();
        request.path("arguments").forEach(word -> arguments.add(word.asText()));
        hooks.clear();
        exitCode = null;
        int code = call(request.path("main").asText(), arguments.toArray(new String[0]));
        System.out.flush();
        System.err.flush();
        out = printed;
        err = complained;
        for (Runnable hook : hooks) {
            hook.run();
        }
        System.out.flush();
        System.err.flush();
        ObjectNode answer = mapper.createObjectNode();
        answer.put("code", code);
        answer.put("out", printed.toString(StandardCharsets.UTF_8));
        answer.put("err", complained.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static int call(String main, String[] arguments) {
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (exitCode == null) {
                failure.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            return 1;
        }
        return exitCode == null ? 0 : exitCode;
    }

    private static void mute() {
        System.out.flush();
        System.err.flush();
        out = OutputStream.nullOutputStream();
        err = OutputStream.nullOutputStream();
    }

    private static void replaceStreams() {
        System.setOut(new PrintStream(new OutputStream() {
            @Override
            public void write(int each) throws java.io.IOException {
                out.write(each);
            }

            @Override
            public void write(byte[] bytes, int from, int length) throws java.io.IOException {
                out.write(bytes, from, length);
            }
        }, true));
        System.setErr(new PrintStream(new OutputStream() {
            @Override
            public void write(int each) throws java.io.IOException {
                err.write(each);
            }

            @Override
            public void write(byte[] bytes, int from, int length) throws java.io.IOException {
                err.write(bytes, from, length);
            }
        }, true));
        System.setIn(new InputStream() {
            @Override
            public int read() throws java.io.IOException {
                return in.read();
            }

            @Override
            public int read(byte[] bytes, int from, int length) throws java.io.IOException {
                return in.read(bytes, from, length);
            }

            @Override
            public int available() throws java.io.IOException {
                return in.available();
            }
        });
    }
}
