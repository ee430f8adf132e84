import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The Java client, driven by verbs; compiles against every kafka-clients from 2.8 to 4.x. Records leave as TSV lines. */
public final class InteropClient {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long LIMIT_MS = 60_000;
    private static final long START = System.currentTimeMillis();

    public static void main(String[] words) throws Exception {
        String address = words[1];
        switch (words[0]) {
            case "create": create(address, words[2], Integer.parseInt(words[3]), Short.parseShort(words[4])); break;
            case "produce": produce(address, words[2], words[3]); break;
            case "consume": consume(address, words[2], Integer.parseInt(words[3]), words[4]); break;
            case "group": group(address, words[2], words[3], Integer.parseInt(words[4])); break;
            case "transact": transact(address, words[2], words[3]); break;
            case "transform":
                transform(address, words[2], words[3], words[4], words[5], Integer.parseInt(words[6]));
                break;
            default: throw new IllegalArgumentException(words[0]);
        }
        System.out.flush();
        System.exit(0);
    }

    private static void checkTime(String waitedFor) {
        if (System.currentTimeMillis() - START > LIMIT_MS) throw new IllegalStateException("still waiting: " + waitedFor);
    }

    private static List<String> input() {
        return new BufferedReader(new InputStreamReader(System.in)).lines().collect(Collectors.toList());
    }

    /** The address, and what the file of INTEROP_PROPERTIES has for its listener. */
    private static Properties connection(String address) {
        Properties settings = new Properties();
        String file = System.getenv("INTEROP_PROPERTIES");
        if (file != null) {
            try (Reader reader = new FileReader(file)) {
                settings.load(reader);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        settings.put("bootstrap.servers", address);
        return settings;
    }

    private static void create(String address, String topic, int partitions, short replicas) throws Exception {
        Properties settings = connection(address);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, replicas))).all().get();
        }
    }

    private static KafkaProducer<String, String> producer(String address, String compression, String transactionalId) {
        Properties settings = connection(address);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("compression.type", compression);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        if (transactionalId != null) settings.put("transactional.id", transactionalId);
        return new KafkaProducer<>(settings);
    }

    private static KafkaConsumer<String, String> consumer(String address, String group, String isolation) {
        Properties settings = connection(address);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", "10000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        if (group != null) settings.put("group.id", group);
        return new KafkaConsumer<>(settings);
    }

    private static void produce(String address, String topic, String compression) throws Exception {
        try (KafkaProducer<String, String> producer = producer(address, compression, null)) {
            List<Future<?>> sent = new ArrayList<>();
            for (String value : input()) sent.add(producer.send(new ProducerRecord<>(topic, value, value)));
            for (Future<?> future : sent) future.get();
        }
    }

    private static void print(String prefix, ConsumerRecord<String, String> record) {
        System.out.println(prefix + record.partition() + "\t" + record.offset() + "\t" + record.key() + "\t" + record.value());
    }

    private static void consume(String address, String topic, int count, String isolation) {
        try (KafkaConsumer<String, String> consumer = consumer(address, null, isolation)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition())).collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (int seen = 0; seen < count; ) {
                checkTime(seen + " of " + count + " records");
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    print("", record);
                    seen++;
                }
            }
        }
    }

    private static void group(String address, String topic, String group, int count) throws Exception {
        List<KafkaConsumer<String, String>> members =
            List.of(consumer(address, group, "read_committed"), consumer(address, group, "read_committed"));
        for (KafkaConsumer<String, String> member : members) member.subscribe(List.of(topic));
        int[] seen = new int[1];
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        Object lock = new Object();
        boolean[] assigned = new boolean[2];
        for (int index = 0; index < 2; index++) {
            int me = index;
            Thread thread = new Thread(() -> {
                try {
                    member(members.get(me), me, count, seen, assigned, lock);
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) thread.join();
        if (!failures.isEmpty()) throw new IllegalStateException(failures.get(0));
    }

    private static void member(
        KafkaConsumer<String, String> member, int me, int count, int[] seen, boolean[] assigned, Object lock
    ) {
        boolean started = false;
        while (true) {
            checkTime("member " + me);
            ConsumerRecords<String, String> records = member.poll(POLL);
            Collection<TopicPartition> mine = member.assignment();
            synchronized (lock) {
                assigned[me] = !mine.isEmpty();
                if (!started) {
                    if (assigned[0] && assigned[1]) {
                        started = true;
                        member.seekToBeginning(mine);
                    }
                    continue;
                }
                for (ConsumerRecord<String, String> record : records) {
                    print(me + "\t", record);
                    seen[0]++;
                }
            }
            member.commitSync();
            if (seen[0] >= count) break;
        }
        member.close();
    }

    private static void transact(String address, String topic, String transactionalId) throws Exception {
        try (KafkaProducer<String, String> producer = producer(address, "none", transactionalId)) {
            producer.initTransactions();
            for (String line : input()) {
                String[] words = line.split("\t");
                producer.beginTransaction();
                for (int index = 1; index < words.length; index++)
                    producer.send(new ProducerRecord<>(topic, words[index], words[index]));
                producer.flush();
                if (words[0].equals("commit")) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
    }

    private static void transform(
        String address, String source, String target, String group, String transactionalId, int count
    ) throws Exception {
        try (KafkaProducer<String, String> producer = producer(address, "none", transactionalId);
             KafkaConsumer<String, String> consumer = consumer(address, group, "read_committed")) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            for (int done = 0; done < count; ) {
                checkTime(done + " of " + count);
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.key(), record.value().toUpperCase()));
                    offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
                done += records.count();
            }
        }
    }
}
