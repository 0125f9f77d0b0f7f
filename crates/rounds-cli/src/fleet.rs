//! What the instances of a fleet share: a ledger, a relay, and an airline that keeps its records in Redis.

use std::{error::Error, time::Duration};

use gallery::{Airline, Counted, Gallery, PRICE};
use redis::{
    Client, FromRedisValue, Pipeline, RedisError,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use rounds::{FlowError, RoundsBuilder, time::BoxFuture};
use rounds_redis::{RedisLedger, RedisRelay};

/// Timeout of the airline's calls to Redis.
const PATIENCE: Duration = Duration::from_secs(1);

/// The gallery as one instance of a fleet. All keys in Redis begin with the prefix.
pub(crate) async fn join(
    url: &str,
    prefix: &str,
    instance: &str,
) -> Result<RoundsBuilder<Gallery>, Box<dyn Error + Send + Sync>> {
    let ledger = RedisLedger::builder(url).prefix(prefix).connect().await?;
    let relay = RedisRelay::builder(url, instance).prefix(prefix).connect().await?;
    let airline = SharedAirline::new(url, prefix)?;
    Ok(gallery::rounds_with(Gallery::flying(airline)).ledger(ledger).relay(relay).register())
}

/// The airline that all instances share. Tests read from Redis what was charged under each key, and how often a charge
/// was attempted.
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
        // In braces, so that all records are on one node of a cluster.
        let book = |name: &str| format!("{prefix}:{{airline}}:{name}");
        Ok(Self { connection, quotes: book("quotes"), charges: book("charges"), attempts: book("attempts") })
    }

    /// Runs the commands as one transaction.
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
