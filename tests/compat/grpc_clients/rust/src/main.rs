// Scenarios of the Rust client for gRPC against a proxy: endpoints, run, and the scenarios' names.
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};

fn client(endpoints: &str) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(endpoints);
    option.set_enable_tls(false);
    option
}

fn producer_option(topic: &str) -> ProducerOption {
    let mut option = ProducerOption::default();
    option.set_topics(vec![topic]);
    option
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

async fn receive(
    consumer: &SimpleConsumer,
    topic: &str,
    filter: &FilterExpression,
    count: usize,
    limit: Duration,
) -> Result<Vec<String>, String> {
    let (mut got, begin) = (Vec::new(), Instant::now());
    while got.len() < count && begin.elapsed() < limit {
        let some = consumer.receive_with(topic, filter, 16, Duration::from_secs(20)).await;
        for message in some.map_err(|error| format!("{error:?}"))? {
            got.push(String::from_utf8_lossy(message.body()).into_owned());
            consumer.ack(&message).await.map_err(|error| format!("{error:?}"))?;
        }
    }
    Ok(got)
}

async fn send(endpoints: &str, name: &str, topic: &str) -> Result<Vec<String>, String> {
    let told = |error: rocketmq::error::ClientError| format!("{error:?}");
    let mut want = Vec::new();
    let mut producer = if name == "transaction" {
        let commit = Box::new(|_: String, _: rocketmq::model::message::MessageView| TransactionResolution::COMMIT);
        Producer::new_transaction_producer(producer_option(topic), client(endpoints), commit).map_err(told)?
    } else {
        Producer::new(producer_option(topic), client(endpoints)).map_err(told)?
    };
    producer.start().await.map_err(told)?;
    for number in 0..10 {
        let body = number.to_string();
        let bytes = body.clone().into_bytes();
        if name == "transaction" {
            let message = MessageBuilder::transaction_message_builder(topic, bytes).build().map_err(told)?;
            let half = producer.send_transaction_message(message).await.map_err(told)?;
            if number % 2 == 0 {
                half.commit().await.map_err(told)?;
                want.push(body);
            } else {
                half.rollback().await.map_err(told)?;
            }
            continue;
        }
        let message = match name {
            "fifo" => MessageBuilder::fifo_message_builder(topic, bytes, "one"),
            "delay" => MessageBuilder::delay_message_builder(topic, bytes, now_s() + 2),
            "tag" => MessageBuilder::builder().set_topic(topic).set_body(bytes).set_tag(["red", "green"][number % 2]),
            _ => MessageBuilder::builder().set_topic(topic).set_body(bytes).set_tag("any"),
        };
        producer.send(message.build().map_err(told)?).await.map_err(told)?;
        if name != "tag" || number % 2 == 0 {
            want.push(body);
        }
    }
    producer.shutdown().await.map_err(told)?;
    Ok(want)
}

async fn scenario(endpoints: &str, name: &str, topic: &str) -> Result<(), String> {
    let told = |error: rocketmq::error::ClientError| format!("{error:?}");
    let filter = FilterExpression::new(FilterType::Tag, if name == "tag" { "red" } else { "*" });
    let mut option = SimpleConsumerOption::default();
    option.set_consumer_group(format!("{topic}-group"));
    option.set_topics(vec![topic]);
    let mut consumer = SimpleConsumer::new(option, client(endpoints)).map_err(told)?;
    consumer.start().await.map_err(told)?;
    receive(&consumer, topic, &filter, 1, Duration::from_millis(1)).await?; // a group begins at the end of a topic
    let begin = Instant::now();
    let want = send(endpoints, name, topic).await?;
    let mut got = receive(&consumer, topic, &filter, want.len(), Duration::from_secs(60)).await?;
    if name == "delay" && begin.elapsed() < Duration::from_secs(1) {
        return Err("delivered early".into());
    }
    if name != "fifo" {
        got.sort();
    }
    let _ = consumer.shutdown().await;
    if got == want { Ok(()) } else { Err(format!("got {got:?}, wanted {want:?}")) }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    for name in &arguments[3..] {
        let (begin, topic) = (Instant::now(), format!("{}-{name}", arguments[2]));
        let limit = Duration::from_secs(120);
        let outcome = tokio::time::timeout(limit, scenario(&arguments[1], name, &topic)).await;
        let (verdict, what) = match outcome {
            Ok(Ok(())) => ("PASS", String::new()),
            Ok(Err(what)) => ("FAIL", what),
            Err(_) => ("FAIL", "not done in 120 s".into()),
        };
        println!("\nRESULT\t{name}\t{verdict}\t{}\t{}", begin.elapsed().as_millis(), what.replace(['\n', '\t'], " "));
    }
}
