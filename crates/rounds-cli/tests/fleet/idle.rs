//! What an instance costs its store while it has nothing to do.

use std::time::Duration;

use rounds_testkit::Redis;

use crate::{fleet::Instances, instance::Keys};

/// Commands that only the test itself sends.
const OWN: [&str; 3] = ["config|resetstat", "client|setinfo", "select"];

#[tokio::test]
async fn an_idle_instance_sends_less_than_a_command_a_second() {
    let redis = Redis::start();
    let _instance = Instances::start(Keys::new(&[1]), &[&redis.url()], &["--tasks-after", "1s"]).await;
    let _: String = redis.ask("CONFIG RESETSTAT", &[]).await;
    // Redis counts by its own clock.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let stats: String = redis.ask("INFO commandstats", &[]).await;
    let sent = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    let sent = sent.filter(|(command, _)| !OWN.contains(command));
    let sent: u32 = sent.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u32>().unwrap()).sum();
    assert!(sent < 10, "{sent} commands in ten seconds: {stats}");
}
