import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Encodes messages with the classes of whatever Apache Kafka is on the class path.
 *
 * Reads lines of JSON {"message": ..., "version": ..., "fields": {...}} and answers each with a line: the hexadecimal
 * bytes, or "-" when this Kafka does not have the message or the version.
 */
public class KafkaVectors {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.",
    };

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = mapper.readTree(line);
            System.out.println(encode(asked.get("message").asText(), asked.get("version").shortValue(), asked.get("fields")));
        }
    }

    private static String encode(String name, short version, JsonNode fields) throws Exception {
        Class<?> type = find(name);
        if (type == null || !has(type, version)) {
            return "-";
        }
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        Message message;
        try {
            message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, fields, version);
        } catch (InvocationTargetException error) {
            throw new IllegalArgumentException(name + " v" + version, error.getCause());
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer encoded = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(encoded), cache, version);
        return HexFormat.of().formatHex(encoded.array());
    }

    private static Class<?> find(String name) {
        for (String prefix : PACKAGES) {
            for (String suffix : new String[] {"Data", ""}) {
                try {
                    return Class.forName(prefix + name + suffix);
                } catch (ClassNotFoundException absent) {
                    continue;
                }
            }
        }
        return null;
    }

    private static boolean has(Class<?> type, short version) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        return message.lowestSupportedVersion() <= version && version <= message.highestSupportedVersion();
    }
}
