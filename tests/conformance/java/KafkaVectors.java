import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Iterator;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Encodes messages with the classes of whatever Apache Kafka is on the class path.
 *
 * Reads lines of JSON {"message": ..., "version": ..., "fields": {...}} and answers each with a line: the hexadecimal
 * bytes, or "-" when this Kafka does not have the message, the version or one of the fields.
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
        Method writer = converter.getMethod("write", type, short.class, boolean.class);
        if (!covers((JsonNode) writer.invoke(null, message, version, true), fields)) {
            return "-";
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer encoded = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(encoded), cache, version);
        return HexFormat.of().formatHex(encoded.array());
    }

    /** Whether what was understood has all the fields that were given. */
    private static boolean covers(JsonNode understood, JsonNode given) {
        if (given.isObject()) {
            for (Iterator<String> names = given.fieldNames(); names.hasNext(); ) {
                String name = names.next();
                if (!understood.has(name) || !covers(understood.get(name), given.get(name))) {
                    return false;
                }
            }
        }
        for (int index = 0; given.isArray() && index < given.size(); index++) {
            if (!covers(understood.get(index), given.get(index))) {
                return false;
            }
        }
        return true;
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
