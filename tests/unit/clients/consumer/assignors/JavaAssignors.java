import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.common.TopicPartition;

/** A line in: topics with their sizes, members with topics and instance ids. A line out: what Kafka's assignors say. */
public class JavaAssignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] words) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            for (AbstractPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor()))
                answer.set(assignor.name(), write(assignor.assign(sizes(asked), members(asked))));
            System.out.println(answer);
        }
    }

    private static Map<String, Integer> sizes(JsonNode asked) {
        Map<String, Integer> sizes = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(topic -> sizes.put(topic.getKey(), topic.getValue().asInt()));
        return sizes;
    }

    private static Map<String, Subscription> members(JsonNode asked) {
        Map<String, Subscription> members = new HashMap<>();
        asked.get("members").fields().forEachRemaining(member -> {
            List<String> topics = new ArrayList<>();
            member.getValue().get("topics").forEach(topic -> topics.add(topic.asText()));
            Subscription subscription = new Subscription(topics);
            subscription.setGroupInstanceId(Optional.ofNullable(member.getValue().get("instance")).filter(id -> !id.isNull()).map(JsonNode::asText));
            members.put(member.getKey(), subscription);
        });
        return members;
    }

    private static ObjectNode write(Map<String, List<TopicPartition>> assignment) {
        ObjectNode written = JSON.createObjectNode();
        assignment.forEach((member, partitions) -> {
            var list = written.putArray(member);
            partitions.stream().map(TopicPartition::toString).sorted().forEach(list::add);
        });
        return written;
    }
}
