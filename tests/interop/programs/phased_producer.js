// kafkajs as a client of workloads whose phases are acknowledged one by one: the same input, output and arguments as
// PhasedProducer.java.
const { Kafka, logLevel } = require('kafkajs')

const [address, topic, prefix] = process.argv.slice(2)
const lines = require('fs').readFileSync(0, 'utf8').split('\n').filter((line) => line).map((line) => line.split('\t'))

// Only the pauses before a retry are shorter than the client's own.
const retry = { initialRetryTime: 2, maxRetryTime: 10 }

async function begin(transactionalId) {
  const kafka = new Kafka({ clientId: transactionalId, brokers: address.split(','), logLevel: logLevel.NOTHING, retry })
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  return producer
}

async function run(number, transactions) {
  const transactionalId = `${prefix}-${number}`
  let producer = await begin(transactionalId)
  for (const words of transactions) {
    const outcome = await transact(producer, transactionalId, words)
    console.log(`${number}\t${outcome}`)
    if (outcome.includes('failed')) {
      await producer.disconnect()
      producer = await begin(transactionalId)
    }
  }
  await producer.disconnect()
}

// What fails before a transaction has begun is not a transaction's outcome; it ends the program.
async function transact(producer, group, [, end, offset, ...phases]) {
  const transaction = await producer.transaction()
  try {
    for (const phase of phases) await send(transaction, phase)
    if (Number(offset) >= 0) {
      const partitions = [{ partition: 0, offset }]
      await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions }] })
    }
  } catch (failure) {
    return aborted(transaction, 'abort-failed', failure)
  }
  if (end === 'abort') return aborted(transaction, 'abort-failed')
  try {
    await transaction.commit()
    return 'committed'
  } catch (failure) {
    return aborted(transaction, 'commit-failed', failure)
  }
}

async function send(transaction, phase) {
  const [partition, values] = phase.split(':')
  const messages = values.split(',').map((value) => ({ partition: Number(partition), key: value, value }))
  await transaction.send({ topic, messages })
}

async function aborted(transaction, unlessDone, cause) {
  const words = (error) => `\t${error.message}`.replace(/\n/g, ' ')
  try {
    await transaction.abort()
    return `aborted${cause ? words(cause) : ''}`
  } catch (failure) {
    return `${unlessDone}${words(cause || failure)}`
  }
}

const numbers = [...new Set(lines.map(([number]) => number))]
const work = numbers.map((number) => run(number, lines.filter(([of]) => of === number)))
Promise.all(work).then(() => process.exit(0), (error) => { console.error(error); process.exit(1) })
