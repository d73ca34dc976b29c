// Scenarios of rocketmq-client-nodejs against a proxy: endpoints, run, and the scenarios' names.
// It runs in a folder of its own that has the client; see tests/compat/proxies/proxy_clients.py.

'use strict';

const { createRequire } = require('node:module');
const path = require('node:path');

const load = createRequire(path.join(process.cwd(), 'package.json'));
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = load('rocketmq-client-nodejs');

const [endpoints, accessKey, accessSecret, run, ...names] = process.argv.slice(2);
const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const common = { endpoints, logger: quiet, namespace: '', sslEnabled: false };
if (accessKey) {
  common.sessionCredentials = { accessKey, accessSecret };
}

function check(holds, what) {
  if (!holds) {
    throw new Error(what);
  }
}

async function producer(topic) {
  const made = new Producer({ ...common, topics: [ topic ] });
  await made.startup();
  return made;
}

async function simple(topic, group, expression = '*') {
  const made = new SimpleConsumer({
    ...common, consumerGroup: group, subscriptions: new Map().set(topic, expression), awaitDuration: 5000,
  });
  await made.startup();
  await made.receive(1, 15000); // a group begins at the end of a topic
  return made;
}

async function receive(consumer, count, seconds) {
  const got = [];
  const end = Date.now() + seconds * 1000;
  while (got.length < count && Date.now() < end) {
    for (const message of await consumer.receive(16, 20000)) {
      got.push(message);
      await consumer.ack(message);
    }
  }
  return got;
}

const scenarios = {
  async normal(topic, group) {
    const consumer = await simple(topic, group);
    const sender = await producer(topic);
    const ids = new Set();
    for (let number = 0; number < 20; number++) {
      const receipt = await sender.send({
        topic, body: Buffer.from(`m${number}`), keys: [ `key-${number}` ], properties: new Map([[ 'origin', 'node' ]]),
      });
      ids.add(receipt.messageId);
    }
    const got = await receive(consumer, 20, 30);
    check(got.length === 20, `${got.length} messages`);
    check(got.every(one => ids.has(one.messageId) && one.properties.get('origin') === 'node'), 'ids or properties');
    await sender.shutdown();
    await consumer.shutdown();
  },

  async tag(topic, group) {
    const consumer = await simple(topic, group, 'red');
    const sender = await producer(topic);
    for (const tag of [ 'red', 'green', 'red' ]) {
      await sender.send({ topic, tag, body: Buffer.from(tag) });
    }
    const got = await receive(consumer, 3, 10);
    check(got.map(one => one.body.toString()).join() === 'red,red', got.map(one => one.body.toString()).join());
    await sender.shutdown();
    await consumer.shutdown();
  },

  async fifo(topic, group) {
    const consumer = await simple(topic, group);
    const sender = await producer(topic);
    for (let number = 0; number < 10; number++) {
      await sender.send({ topic, messageGroup: 'one', body: Buffer.from(`${number}`) });
    }
    const got = await receive(consumer, 10, 30);
    check(got.map(one => one.body.toString()).join('') === '0123456789', got.map(one => one.body.toString()).join(''));
    await sender.shutdown();
    await consumer.shutdown();
  },

  async delay(topic, group) {
    const consumer = await simple(topic, group);
    const sender = await producer(topic);
    const due = Date.now() + 3000;
    await sender.send({ topic, delay: 3000, body: Buffer.from('later') });
    const gone = await sender.send({ topic, delay: 6000, body: Buffer.from('gone') });
    await sender.recallMessage(topic, gone.recallHandle);
    const got = await receive(consumer, 2, 14);
    check(got.length === 1 && Date.now() >= due - 100, `${got.length} messages`);
    await sender.shutdown();
    await consumer.shutdown();
  },

  async push(topic, group) {
    const got = new Set();
    let failures = 0;
    const consumer = new PushConsumer({
      ...common, consumerGroup: group, subscriptions: new Map([[ topic, '*' ]]),
      messageListener: {
        async consume(message) {
          const body = message.body.toString();
          if (body === 'm7' && !failures++) {
            return ConsumeResult.FAILURE;
          }
          got.add(body);
          return ConsumeResult.SUCCESS;
        },
      },
    });
    await consumer.startup();
    const sender = await producer(topic);
    const end = Date.now() + 60000;
    while (!got.size && Date.now() < end) {
      await sender.send({ topic, body: Buffer.from('warm') });
      await new Promise(resolve => setTimeout(resolve, 500));
    }
    for (let number = 0; number < 30; number++) {
      await sender.send({ topic, body: Buffer.from(`m${number}`) });
    }
    const count = () => [ ...got ].filter(one => one.startsWith('m')).length;
    while (count() < 30 && Date.now() < end) {
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    const missing = [ ...Array(30).keys() ].map(number => `m${number}`).filter(body => !got.has(body));
    check(!missing.length, `missing: ${missing}`);
  },
};

// Sends one message every 200 ms until each is acknowledged, while servers are killed; a listener refuses one of them.
scenarios.faults = async (topic, group) => {
  const got = new Set();
  let failures = 0;
  const consumer = new PushConsumer({
    ...common, consumerGroup: group, subscriptions: new Map([[ topic, '*' ]]),
    messageListener: {
      async consume(message) {
        const body = message.body.toString();
        if (body === 'm7' && !failures++) {
          return ConsumeResult.FAILURE;
        }
        got.add(body);
        return ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  const sender = await producer(topic);
  const pause = millis => new Promise(resolve => setTimeout(resolve, millis));
  const send = async body => {
    const end = Date.now() + 60000;
    for (;;) {
      try {
        return await sender.send({ topic, body: Buffer.from(body) });
      } catch (error) {
        check(Date.now() < end, `${body} is not taken: ${error}`);
        await pause(200);
      }
    }
  };
  while (!got.size) {
    await send('warm');
    await pause(500);
  }
  console.log('WARM');
  for (let number = 0; number < 80; number++) {
    await send(`m${number}`);
    await pause(200);
  }
  const missing = () => [ ...Array(80).keys() ].map(number => `m${number}`).filter(body => !got.has(body));
  const end = Date.now() + 90000;
  while (missing().length && Date.now() < end) {
    await pause(50);
  }
  check(!missing().length, `missing: ${missing()}`);
};

async function main() {
  for (const name of names) {
    const begin = Date.now();
    let verdict = 'PASS';
    let what = '';
    try {
      await scenarios[name](`${run}-${name}`, `${run}-${name}-group`);
    } catch (error) {
      verdict = 'FAIL';
      what = String(error).replace(/\s+/g, ' ');
    }
    console.log([ 'RESULT', name, verdict, Date.now() - begin, what ].join('\t'));
  }
  process.exit(0);
}

main();
