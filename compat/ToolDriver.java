import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs main classes of Apache Kafka one after another in one JVM, because starting a JVM takes
 * longer than most of them. One line of JSON comes in for each, {"main", "arguments", "text"}, and
 * one goes out, {"code", "out", "err"}.
 *
 * The tools are not changed: they end through Kafka's own Exit, which lets itself be replaced, and
 * their shutdown hooks run when they return. The first exit counts, and what the thread that exits
 * says after it is dropped: some catch everything, also what the exit throws here, and exit again.
 * The streams are replaced once, before any tool is
 * loaded, because Scala's Console and log4j keep the ones that they find. Classes of Kafka's package
 * of tools are loaded anew for each, because some count in static fields; the clients below them are
 * loaded once.
 */
public final class ToolDriver {
    private static volatile OutputStream out = OutputStream.nullOutputStream();
    private static volatile OutputStream err = OutputStream.nullOutputStream();
    private static volatile InputStream in = InputStream.nullInputStream();
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static final URL[] JARS = jars();
    private static final List<Runnable> hooks = new ArrayList<>();
    private static volatile Integer exitCode;
    private static volatile Thread muted;

    /** What a tool's exit becomes. */
    private static final class Exited extends Error {
        Exited(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** Writes to wherever output goes at the moment, and drops what a thread says after its exit. */
    private static final class Switch extends OutputStream {
        private final Supplier<OutputStream> target;

        Switch(Supplier<OutputStream> target) {
            this.target = target;
        }

        @Override
        public void write(int each) throws IOException {
            if (Thread.currentThread() != muted) {
                target.get().write(each);
            }
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            if (Thread.currentThread() != muted) {
                target.get().write(bytes, from, length);
            }
        }
    }

    /** Loads Kafka's tools anew, everything else where it was loaded before. */
    private static final class ToolLoader extends URLClassLoader {
        ToolLoader() {
            super(JARS, ToolDriver.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith(TOOLS) || name.startsWith(TOOLS + "api.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> known = findLoadedClass(name);
                return known != null ? known : findClass(name);
            }
        }
    }

    private static URL[] jars() {
        List<URL> found = new ArrayList<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (path.contains("kafka-tools")) {
                try {
                    found.add(new File(path).toURI().toURL());
                } catch (MalformedURLException failure) {
                    throw new IllegalStateException(failure);
                }
            }
        }
        return found.toArray(new URL[0]);
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
                muted = Thread.currentThread();
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
        muted = null;
        int code = call(request.path("main").asText(), arguments.toArray(new String[0]));
        muted = null;
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
            ClassLoader loader = new ToolLoader();
            Thread.currentThread().setContextClassLoader(loader);
            loader.loadClass(main).getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
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

    private static void replaceStreams() {
        System.setOut(new PrintStream(new Switch(() -> out), true));
        System.setErr(new PrintStream(new Switch(() -> err), true));
        System.setIn(new InputStream() {
            @Override
            public int read() throws IOException {
                return in.read();
            }

            @Override
            public int read(byte[] bytes, int from, int length) throws IOException {
                return in.read(bytes, from, length);
            }

            @Override
            public int available() throws IOException {
                return in.available();
            }
        });
    }
}
