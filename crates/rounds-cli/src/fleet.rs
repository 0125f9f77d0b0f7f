//! What the instances of a fleet share: a ledger, a relay, and an airline whose books are in Redis.

use std::{error::Error, time::Duration};

use gallery::{Airline, Counted, Gallery, PRICE};
use redis::{
    Client, FromRedisValue, Pipeline, RedisError,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use rounds::{FlowError, RoundsBuilder, time::BoxFuture};
use rounds_redis::{RedisLedger, RedisRelay};

use crate::Failure;

/// How long Redis may take to write in the airline's books.
const PATIENCE: Duration = Duration::from_secs(1);

/// The gallery as one instance of a fleet. Everything in Redis begins with the prefix.
pub(crate) async fn join(url: &str, prefix: &str, instance: &str) -> Result<RoundsBuilder<Gallery>, Failure> {
    let joined = async {
        let ledger = RedisLedger::builder(url).prefix(prefix).connect().await?;
        let relay = RedisRelay::builder(url, instance).prefix(prefix).connect().await?;
        let airline = SharedAirline::new(url, prefix)?;
        Ok(gallery::rounds_with(Gallery::flying(airline)).ledger(ledger).relay(relay))
    };
    joined.await.map_err(|source: Box<dyn Error + Send + Sync>| Failure::Redis { redis: without_password(url), source })
}

/// An address may have a password in it, which nobody is told.
fn without_password(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, host)) => format!("the Redis at {host}"),
        None => url.to_owned(),
    }
}

/// The airline of all instances. Who looks at its books from outside finds what was charged under each key, and how often it was
/// tried.
struct SharedAirline {
    connection: ConnectionManager,
    quotes: String,
    charges: String,
    attempts: String,
}

impl SharedAirline {
    fn new(url: &str, prefix: &str) -> Result<Self, RedisError> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE))
            .set_number_of_retries(1);
        let connection = ConnectionManager::new_lazy_with_config(Client::open(url)?, config)?;
        // In braces, so that a cluster has the books in one place.
        let book = |name: &str| format!("{prefix}:{{airline}}:{name}");
        Ok(Self { connection, quotes: book("quotes"), charges: book("charges"), attempts: book("attempts") })
    }

    /// All of it, or nothing.
    async fn write<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, FlowError> {
        pipeline.query_async(&mut self.connection.clone()).await.map_err(FlowError::retry)
    }
}

impl Airline for SharedAirline {
    fn quote(&self) -> BoxFuture<'_, Result<u32, FlowError>> {
        Box::pin(async {
            let _: () = self.write(redis::pipe().atomic().cmd("INCR").arg(&self.quotes)).await?;
            Ok(PRICE)
        })
    }

    fn charge<'a>(&'a self, key: &'a str, flight: &'a str) -> BoxFuture<'a, Result<(), FlowError>> {
        Box::pin(async move {
            let mut charge = redis::pipe();
            charge.atomic().cmd("HSETNX").arg(&self.charges).arg(key).arg(flight);
            charge.cmd("HINCRBY").arg(&self.attempts).arg(key).arg(1);
            self.write(&charge).await
        })
    }

    fn counted(&self) -> BoxFuture<'_, Result<Counted, FlowError>> {
        Box::pin(async {
            let mut count = redis::pipe();
            count.atomic().cmd("GET").arg(&self.quotes).cmd("HVALS").arg(&self.attempts);
            let (quotes, attempts): (Option<u64>, Vec<u64>) = self.write(&count).await?;
            let charges = attempts.len() as u64;
            let duplicates = attempts.iter().sum::<u64>() - charges;
            Ok(Counted { quotes: quotes.unwrap_or_default(), charges, duplicates })
        })
    }
}
