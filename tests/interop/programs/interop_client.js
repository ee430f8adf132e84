// kafkajs, driven by the same verbs as InteropClient.java; records leave as TSV lines.
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [verb, address, ...words] = process.argv.slice(2)
// INTEROP_SECURITY: the settings ssl and sasl, as JSON.
const security = JSON.parse(process.env.INTEROP_SECURITY || '{}')
const kafka = new Kafka({ clientId: 'interop', brokers: address.split(','), logLevel: logLevel.ERROR, ...security })
const input = () => require('fs').readFileSync(0, 'utf8').split('\n').filter((line) => line)
const text = (buffer) => (buffer === null ? 'null' : buffer.toString())
const print = (prefix, partition, message) =>
  console.log(`${prefix}${partition}\t${message.offset}\t${text(message.key)}\t${text(message.value)}`)
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds))
const message = (value) => ({ key: value, value })

async function create(topic, partitions, replicationFactor) {
  const admin = kafka.admin()
  await admin.connect()
  const [numPartitions, replicas] = [partitions, replicationFactor].map(Number)
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: replicas }] })
  await admin.disconnect()
}

async function partitionCount(topic) {
  const admin = kafka.admin()
  await admin.connect()
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  await admin.disconnect()
  return topics[0].partitions.length
}

async function produce(topic, compression) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const codec = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }[compression]
  await producer.send({ topic, compression: codec, acks: -1, messages: input().map(message) })
  await producer.disconnect()
}

// Runs `count` records of a topic through `each`, by `members` members of one group that start reading together.
async function read(topic, group, count, members, readUncommitted, each) {
  const consumers = []
  let seen = 0
  let finish
  const finished = new Promise((resolve) => { finish = resolve })
  const partitions = await partitionCount(topic)
  const assigned = new Array(members).fill(0)
  let start
  let running = members === 1
  const started = new Promise((resolve) => { start = resolve }).then(() => { running = true })
  for (let me = 0; me < members; me++) {
    const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000, heartbeatInterval: 300, readUncommitted })
    consumers.push(consumer)
    consumer.on(consumer.events.GROUP_JOIN, (event) => {
      // The members have started when each has a partition, and together they have them all.
      assigned[me] = (event.payload.memberAssignment[topic] || []).length
      const all = assigned.reduce((sum, mine) => sum + mine, 0)
      if (assigned.every((mine) => mine > 0) && all === partitions) start()
    })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
  }
  for (let me = 0; me < members; me++) {
    consumers[me].run({
      autoCommit: false,
      eachMessage: async ({ partition, message, heartbeat }) => {
        // A heartbeat that hears of a rebalance throws, and the client joins again.
        while (!running) await Promise.race([started, pause(100).then(heartbeat)])
        await each(me, partition, message, consumers[me])
        if (++seen >= count) finish()
      },
    })
  }
  await finished
  await Promise.all(consumers.map((consumer) => consumer.disconnect()))
}

async function consume(topic, count, isolation) {
  const group = `interop-${process.pid}-${process.hrtime.bigint()}`
  await read(topic, group, Number(count), 1, isolation === 'read_uncommitted', async (me, partition, message) =>
    print('', partition, message))
}

async function group(topic, groupId, count) {
  await read(topic, groupId, Number(count), 2, false, async (me, partition, message, consumer) => {
    print(`${me}\t`, partition, message)
    await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
  })
}

async function transactional(transactionalId) {
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

async function transact(topic, transactionalId) {
  const producer = await transactional(transactionalId)
  for (const line of input()) {
    const [end, ...values] = line.split('\t')
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: values.map(message) })
    await (end === 'commit' ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
}

async function transform(source, target, groupId, transactionalId, count) {
  const producer = await transactional(transactionalId)
  await read(source, groupId, Number(count), 1, false, async (me, partition, record) => {
    const transaction = await producer.transaction()
    await transaction.send({ topic: target, messages: [{ key: record.key, value: text(record.value).toUpperCase() }] })
    const offset = String(Number(record.offset) + 1)
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition, offset }] }] })
    await transaction.commit()
  })
  await producer.disconnect()
}

const verbs = { create, produce, consume, group, transact, transform }
verbs[verb](...words).then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
