// Reads messages from standard input, one JSON object a line with message, version and hex, and
// answers each with what Apache Kafka's generated class makes of the bytes: its JSON, and the bytes
// that it writes again. Names of classes are looked for in the packages below.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class Vectors {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.transaction.generated",
    };

    // Kafka's generated data classes of requests and responses end in Data, its records do not.
    private static Class<?> find(String message) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            for (String name : new String[] {message + "Data", message}) {
                try {
                    return Class.forName(place + "." + name);
                } catch (ClassNotFoundException missing) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(message);
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode asked = mapper.readTree(line);
            ObjectNode answer = mapper.createObjectNode();
            try {
                short version = (short) asked.get("version").asInt();
                ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(asked.get("hex").asText()));
                Class<?> type = find(asked.get("message").asText());
                Message message = (Message) type.getDeclaredConstructor().newInstance();
                message.read(new ByteBufferAccessor(bytes), version);
                answer.put("left", bytes.remaining());
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(written), cache, version);
                answer.put("hex", HexFormat.of().formatHex(written.array()));
                Class<?> json = Class.forName(type.getName() + "JsonConverter");
                answer.set("json", (JsonNode) json.getMethod("write", type, short.class, boolean.class)
                    .invoke(null, message, version, true));
            } catch (Exception fault) {
                answer.put("fault", fault.toString());
            }
            System.out.println(mapper.writeValueAsString(answer));
        }
    }
}
