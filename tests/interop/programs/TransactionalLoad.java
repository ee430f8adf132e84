import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringReader;
import java.io.StringWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * The Java client as a client of the load of tests/faults: a writer and a worker, each with a thread.
 *
 * What it is told and says is described in tests/faults/programs/speech.py, whose constants are repeated here.
 */
public final class TransactionalLoad {
    private static final int RECORDS = 6, ABORT_EACH = 5, BATCH = 20, PARTITIONS = 6;
    private static final long OPEN_MS = 30, BETWEEN_MS = 50, INSIST_MS = 30_000;
    private static final int CALL_MS = 15_000, REQUEST_MS = 4_000, DELIVERY_MS = 30_000, TRANSACTION_TIMEOUT_MS = 20_000;
    private static final String INPUTS = "inputs";

    private final String address;
    private final String client;
    private final Gate writerGate = new Gate("writer");
    private final Gate workerGate = new Gate("worker");

    private final long firstOfWriter;
    private final long firstOfWorker;

    private TransactionalLoad(String[] words) {
        address = words[0];
        client = words[1];
        firstOfWriter = Long.parseLong(words[2]);
        firstOfWorker = Long.parseLong(words[3]);
    }

    public static void main(String[] words) throws Exception {
        TransactionalLoad load = new TransactionalLoad(words);
        load.start("writer", load::write);
        load.start("worker", load::work);
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.trim().split(" ");
            Gate gate = order[0].equals("writer") ? load.writerGate : load.workerGate;
            gate.set(order[1].equals("run"));
        }
        Runtime.getRuntime().halt(0);
    }

    private interface Part {
        void play() throws Exception;
    }

    private void start(String role, Part part) {
        new Thread(() -> {
            try {
                part.play();
            } catch (Throwable failure) {
                StringWriter text = new StringWriter();
                failure.printStackTrace(new PrintWriter(text));
                say(role, "trouble", 0, 0, "gave up: " + text);
                Runtime.getRuntime().halt(1);
            }
        }, role).start();
    }

    private static synchronized void say(String role, String event, long number, int count, String detail) {
        String escaped = detail.replace("\\", "\\\\").replace("\"", "'").replace("\n", "\\n").replace("\t", " ");
        System.out.println("{\"role\": \"" + role + "\", \"event\": \"" + event + "\", \"number\": " + number
            + ", \"count\": " + count + ", \"detail\": \"" + escaped.replace("\r", "") + "\"}");
        System.out.flush();
    }

    /** Where a role waits while it is paused. */
    private static final class Gate {
        private final String role;
        private boolean open;

        Gate(String role) {
            this.role = role;
        }

        synchronized void set(boolean mayRun) {
            open = mayRun;
            notifyAll();
        }

        synchronized void passThrough() throws InterruptedException {
            if (open) return;
            say(role, "paused", 0, 0, "");
            while (!open) wait();
        }
    }

    /** This producer cannot go on; a successor has to be made. */
    private static final class Broken extends Exception {
        Broken(Throwable cause) {
            super(cause);
        }
    }

    private interface Call {
        void call();
    }

    /** Call again as long as the client says that it may help: its calls go on waiting when they are repeated. */
    private static void insist(Call call) {
        long deadline = System.currentTimeMillis() + INSIST_MS;
        while (true) {
            try {
                call.call();
                return;
            } catch (TimeoutException | InterruptException error) {
                if (System.currentTimeMillis() > deadline) throw error;
            }
        }
    }

    private static Throwable rootOf(Throwable error) {
        return error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
    }

    private interface Body {
        void send(KafkaProducer<String, String> producer, long number) throws Exception;
    }

    /** The transactions of one role, through as many producers as it takes. */
    private final class Transactions {
        private final String role;
        private final String transactionalId;
        private long number;
        private KafkaProducer<String, String> producer;

        Transactions(String role, String transactionalId, long first) {
            this.role = role;
            this.number = first - 1;
            this.transactionalId = transactionalId;
            this.producer = newProducer();
        }

        private KafkaProducer<String, String> newProducer() {
            while (true) {
                KafkaProducer<String, String> made = new KafkaProducer<>(settings());
                try {
                    insist(made::initTransactions);
                    return made;
                } catch (KafkaException error) {
                    say(role, "trouble", 0, 0, "init: " + error);
                    made.close(Duration.ZERO);
                }
            }
        }

        private Properties settings() {
            Properties settings = connection();
            settings.put("transactional.id", transactionalId);
            settings.put("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS);
            settings.put("max.block.ms", CALL_MS);
            settings.put("request.timeout.ms", REQUEST_MS);
            settings.put("delivery.timeout.ms", DELIVERY_MS);
            settings.put("reconnect.backoff.ms", 20);
            settings.put("reconnect.backoff.max.ms", 500);
            settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            return settings;
        }

        void renew() {
            producer.close(Duration.ZERO);
            producer = newProducer();
        }

        /** One transaction; true if it was committed. After Broken, renew is the thing to do. */
        boolean run(int records, Body body, boolean commit) throws Broken {
            number++;
            say(role, "begin", number, records, "");
            try {
                producer.beginTransaction();
                body.send(producer, number);
            } catch (Exception error) {
                abort(rootOf(error).toString());
                return false;
            }
            if (!commit) {
                abort("on purpose");
                return false;
            }
            return commit();
        }

        /** Its end was never asked for, so whatever happens to this producer, it will never be committed. */
        private void abort(String reason) throws Broken {
            say(role, "aborted", number, 0, reason);
            try {
                insist(producer::abortTransaction);
            } catch (KafkaException | IllegalStateException error) {
                say(role, "trouble", number, 0, "abort: " + error);
                throw new Broken(error);
            }
        }

        private boolean commit() throws Broken {
            try {
                insist(producer::commitTransaction);
            } catch (TimeoutException error) {
                say(role, "unknown", number, 0, error.toString());
                throw new Broken(error);
            } catch (KafkaException | IllegalStateException error) {
                abortInstead(error);
                return false;
            }
            say(role, "committed", number, 0, "");
            return true;
        }

        private void abortInstead(RuntimeException reason) throws Broken {
            try {
                insist(producer::abortTransaction);
            } catch (KafkaException | IllegalStateException error) {
                say(role, "unknown", number, 0, reason + ", then " + error);
                throw new Broken(error);
            }
            say(role, "aborted", number, 0, reason.toString());
        }
    }

    private void send(KafkaProducer<String, String> producer, String topic, List<Object[]> records) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (Object[] record : records)
            sent.add(producer.send(new ProducerRecord<>(topic, (Integer) record[0] % PARTITIONS, null, (String) record[1])));
        producer.flush();
        for (Future<?> future : sent) future.get();
    }

    private void write() throws Exception {
        Transactions transactions = new Transactions("writer", "writer-" + client, firstOfWriter);
        for (long turn = 1; ; turn++) {
            writerGate.passThrough();
            try {
                transactions.run(RECORDS, (producer, number) -> {
                    List<Object[]> records = new ArrayList<>();
                    for (int index = 0; index < RECORDS; index++) {
                        String value = client + ":" + number + ":" + index + ":" + RECORDS;
                        records.add(new Object[] {(int) (number + index / 2) % PARTITIONS, value});
                    }
                    send(producer, INPUTS, records.subList(0, RECORDS / 2));
                    Thread.sleep(OPEN_MS);
                    send(producer, INPUTS, records.subList(RECORDS / 2, RECORDS));
                }, turn % ABORT_EACH != 0);
            } catch (Broken broken) {
                transactions.renew();
            }
            Thread.sleep(BETWEEN_MS);
        }
    }

    /** Where to connect, and what LOAD_SECURITY has for that. */
    private Properties connection() {
        Properties settings = new Properties();
        String security = System.getenv("LOAD_SECURITY");
        try {
            if (security != null) settings.load(new StringReader(security));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        settings.put("bootstrap.servers", address);
        return settings;
    }

    private KafkaConsumer<String, String> consumer() {
        Properties settings = connection();
        settings.put("group.id", "group-" + client);
        settings.put("group.instance.id", "worker");
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", BATCH);
        settings.put("session.timeout.ms", "10000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("request.timeout.ms", REQUEST_MS);
        settings.put("default.api.timeout.ms", CALL_MS);
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(settings);
    }

    private void work() throws Exception {
        Transactions transactions = new Transactions("worker", "worker-" + client, firstOfWorker);
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of(INPUTS));
            while (true) {
                workerGate.passThrough();
                List<ConsumerRecord<String, String>> records = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) records.add(record);
                if (records.isEmpty()) continue;
                boolean done = false;
                try {
                    done = transactions.run(
                        records.size(), (producer, number) -> transform(producer, consumer, number, records), true);
                } catch (Broken broken) {
                    transactions.renew();
                }
                if (!done) rewind(consumer);
            }
        }
    }

    private void transform(
        KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, long number,
        List<ConsumerRecord<String, String>> records
    ) throws Exception {
        List<Object[]> made = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int index = 0; index < records.size(); index++) {
            ConsumerRecord<String, String> record = records.get(index);
            String place = record.partition() + ":" + record.offset();
            String value = client + ":" + number + ":" + index + ":" + records.size() + "|" + record.value() + "|" + place;
            made.add(new Object[] {record.partition(), value});
            offsets.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        send(producer, "outputs-" + client, made);
        insist(() -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
    }

    /** Go back to what is committed. */
    private static void rewind(KafkaConsumer<String, String> consumer) {
        while (true) {
            try {
                Collection<TopicPartition> assigned = consumer.assignment();
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(new java.util.HashSet<>(assigned));
                for (TopicPartition partition : assigned) {
                    OffsetAndMetadata found = committed.get(partition);
                    consumer.seek(partition, found == null ? 0 : found.offset());
                }
                return;
            } catch (KafkaException error) {
                say("worker", "trouble", 0, 0, "rewind: " + error);
            }
        }
    }
}
