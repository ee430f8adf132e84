import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** The Java client of Kafka 0.10, which knows neither transactions nor headers. Records leave as TSV lines. */
public final class OldClient {
    private static final long POLL_MS = 200;
    private static final long LIMIT_MS = 60_000;

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "produce": produce(words[1], words[2], words[3]); break;
            case "consume": consume(words[1], words[2], words[3], Integer.parseInt(words[4])); break;
            default: throw new IllegalArgumentException(words[0]);
        }
        System.out.flush();
        System.exit(0);
    }

    private static void produce(String address, String topic, String compression) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("acks", "all");
        settings.put("linger.ms", "50");
        settings.put("compression.type", compression);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        List<String> values =
            new BufferedReader(new InputStreamReader(System.in)).lines().collect(Collectors.toList());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<?>> sent = new ArrayList<>();
            for (String value : values) sent.add(producer.send(new ProducerRecord<>(topic, value, value)));
            for (Future<?> future : sent) future.get();
        }
    }

    /** Reads on behind what the group has committed, and commits. */
    private static void consume(String address, String topic, String group, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        long end = System.currentTimeMillis() + LIMIT_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(topic));
            int seen = 0;
            while (seen < count) {
                if (System.currentTimeMillis() > end) throw new IllegalStateException(seen + " of " + count);
                for (ConsumerRecord<String, String> record : consumer.poll(POLL_MS)) {
                    seen++;
                    System.out.println(
                        record.partition() + "\t" + record.offset() + "\t" + record.key() + "\t" + record.value());
                }
            }
            consumer.commitSync();
        }
    }
}
