import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;

/** Counts the records of each key, exactly once: ADDRESS INPUT OUTPUT APPLICATION DIRECTORY REPLICAS. */
public final class StreamsCount {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, words[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, words[4]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, words[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        Map<String, String> changelog = Map.of("min.cleanable.dirty.ratio", "0.01", "segment.ms", "2000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(words[1])
                .groupByKey()
                .count(Materialized.<String, Long, org.apache.kafka.streams.state.KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("counts")
                        .withLoggingEnabled(changelog))
                .toStream()
                .mapValues(String::valueOf)
                .to(words[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch dead = new CountDownLatch(1);
        streams.setStateListener((after, before) -> {
            System.out.println("state " + after);
            if (after == KafkaStreams.State.ERROR) {
                dead.countDown();
            }
        });
        streams.start();
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        dead.await();
        System.exit(1);
    }
}
