import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactional producers that say what became of each transaction: {@code PhasedProducer ADDRESS TOPIC PREFIX}.
 *
 * Input lines are {@code producer TAB commit|abort TAB offset TAB partition:value,value TAB …}. An offset that is not
 * negative is committed for partition 0 in the group PREFIX-producer. Each producer, with that as its transactional id,
 * runs its own lines in order, all producers at once. Every phase is acknowledged
 * before the next begins. A line {@code producer TAB outcome [TAB error]} leaves when a transaction has ended.
 */
public final class PhasedProducer {
    private static final long LIMIT_NS = 120_000_000_000L;
    private static final long START = System.nanoTime();

    private final Properties settings = new Properties();
    private final String number;
    private final String topic;
    private KafkaProducer<String, String> producer;

    public static void main(String[] words) throws Exception {
        Map<String, List<String[]>> lines = new TreeMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t");
            lines.computeIfAbsent(parts[0], key -> new ArrayList<>()).add(parts);
        }
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        lines.forEach((number, transactions) -> threads.add(new Thread(() -> {
            try {
                new PhasedProducer(words[0], words[1], words[2], number).run(transactions);
            } catch (Throwable failure) {
                failures.add(failure);
            }
        })));
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        if (!failures.isEmpty()) throw new IllegalStateException(failures.get(0));
        System.exit(0);
    }

    private PhasedProducer(String address, String topic, String prefix, String number) {
        this.topic = topic;
        this.number = number;
        settings.put("bootstrap.servers", address);
        settings.put("transactional.id", prefix + "-" + number);
        settings.put("acks", "all");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("linger.ms", "500");  // A phase is one batch, sent by its flush.
        settings.put("request.timeout.ms", "1500");
        settings.put("delivery.timeout.ms", "2000");  // A batch is given up as soon as it can be.
        settings.put("retry.backoff.ms", "2");
        settings.put("reconnect.backoff.ms", "1");
        settings.put("reconnect.backoff.max.ms", "10");
    }

    private void run(List<String[]> transactions) {
        begin();
        for (String[] words : transactions) {
            checkTime("transaction");
            String outcome = transaction(words);
            System.out.println(number + "\t" + outcome);
            if (outcome.contains("failed")) begin();
        }
        producer.close();
    }

    private void begin() {
        if (producer != null) producer.close(Duration.ZERO);
        producer = new KafkaProducer<>(settings);
        producer.initTransactions();
    }

    private String transaction(String[] words) {
        try {
            producer.beginTransaction();
            for (int index = 3; index < words.length; index++) phase(words[index]);
            long offset = Long.parseLong(words[2]);
            if (offset >= 0)
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset)),
                    new ConsumerGroupMetadata((String) settings.get("transactional.id")));
        } catch (Exception failure) {
            return aborted("abort-failed", failure);
        }
        if (words[1].equals("abort")) return aborted("abort-failed", null);
        try {
            producer.commitTransaction();
            return "committed";
        } catch (KafkaException failure) {
            return aborted("commit-failed", failure);
        }
    }

    private String aborted(String unlessDone, Exception cause) {
        try {
            producer.abortTransaction();
            return "aborted" + (cause == null ? "" : "\t" + cause);
        } catch (KafkaException failure) {
            return unlessDone + "\t" + (cause == null ? failure : cause);
        }
    }

    private void phase(String phase) throws Exception {
        String[] parts = phase.split(":");
        List<Future<?>> sent = new ArrayList<>();
        for (String value : parts[1].split(","))
            sent.add(producer.send(new ProducerRecord<>(topic, Integer.valueOf(parts[0]), value, value)));
        producer.flush();
        try {
            for (Future<?> future : sent) future.get();
        } catch (ExecutionException failure) {
            waitUntilFailed();
            throw failure;
        }
    }

    // The client completes a failed future before its transaction knows of the failure. Whoever aborts in between gets
    // another epoch than whoever aborts later; runs of equal seeds must not differ in that.
    private void waitUntilFailed() {
        while (true) {
            checkTime("transaction to fail");
            try {
                producer.beginTransaction();
            } catch (IllegalStateException isOpen) {
                Thread.onSpinWait();
            } catch (KafkaException failed) {
                return;
            }
        }
    }

    private void checkTime(String waitedFor) {
        if (System.nanoTime() - START > LIMIT_NS)
            throw new IllegalStateException("producer " + number + " still waits for a " + waitedFor);
    }
}
