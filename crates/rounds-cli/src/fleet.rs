//! What the instances of a fleet share: a ledger, a relay, and an airline that keeps its records in Redis.

use std::{
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gallery::{Airline, Counted, Gallery, PRICE};
use redis::{
    FromRedisValue, Pipeline, RedisError,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use rounds::{FlowError, RoundsBuilder, time::BoxFuture};
use rounds_redis::{RedisAddress, RedisLedger, RedisLedgerBuilder, RedisRelay, RedisRelayBuilder, RedisTls};

use crate::store_options::{StoreOptions, set};

/// Timeout of the airline's calls to Redis.
const PATIENCE: Duration = Duration::from_secs(1);

/// Timeout of its connection, which takes several round trips.
const CONNECTING: Duration = Duration::from_secs(5);

/// The gallery as one instance of a fleet. All keys in Redis begin with the prefix.
pub(crate) async fn join(
    url: &str,
    prefix: &str,
    instance: &str,
    options: &StoreOptions,
) -> Result<RoundsBuilder<Gallery>, Box<dyn Error + Send + Sync>> {
    let mut tls = RedisTls::new();
    if let Some(file) = &options.store_ca {
        tls = tls.ca_file(file)?;
    }
    if let (Some(certificate), Some(key)) = (&options.store_cert, &options.store_key) {
        tls = tls.client_files(certificate, key)?;
    }
    let ledger = RedisLedger::builder(url).prefix(prefix).tls(tls.clone());
    let ledger = set(ledger, options.store_timeout, RedisLedgerBuilder::timeout);
    let ledger = set(ledger, options.store_connect_timeout, RedisLedgerBuilder::connect_timeout);
    let ledger = set(ledger, options.store_anonymous_bytes, RedisLedgerBuilder::anonymous_bytes);
    let ledger = set(ledger, options.store_principal_bytes, RedisLedgerBuilder::principal_bytes);
    let ledger = set(ledger, options.store_freeing_bytes, RedisLedgerBuilder::freeing_bytes).connect().await?;
    let relay = RedisRelay::builder(url, instance).prefix(prefix).tls(tls.clone());
    let relay = set(relay, options.store_timeout, RedisRelayBuilder::timeout);
    let relay = set(relay, options.store_connect_timeout, RedisRelayBuilder::connect_timeout).connect().await?;
    let airline = SharedAirline::new(RedisAddress::new(url, &tls)?, prefix);
    Ok(gallery::rounds_with(Gallery::flying(airline)).ledger(ledger).relay(relay).register())
}

/// The airline that all instances share. Tests read from Redis what was charged under each key, and how often a charge
/// was attempted.
struct SharedAirline {
    address: RedisAddress,
    /// None before the first call, and after one that failed: this may not be the primary any more.
    connection: Mutex<Option<ConnectionManager>>,
    quotes: String,
    charges: String,
    attempts: String,
}

impl SharedAirline {
    fn new(address: RedisAddress, prefix: &str) -> Self {
        let connection = Mutex::default();
        let book = |name: &str| format!("{prefix}:{{airline}}:{name}");
        Self { address, connection, quotes: book("quotes"), charges: book("charges"), attempts: book("attempts") }
    }

    /// Runs the commands as one transaction.
    async fn write<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, FlowError> {
        let written = async { pipeline.query_async(&mut self.connection().await?).await }.await;
        if written.is_err() {
            // A manager opens its connection again only when it breaks. A primary that was demoted keeps it open, and refuses
            // a transaction with one of several errors.
            *self.current() = None;
        }
        written.map_err(FlowError::retry)
    }

    async fn connection(&self) -> Result<ConnectionManager, RedisError> {
        if let Some(connection) = &*self.current() {
            return Ok(connection.clone());
        }
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECTING))
            .set_response_timeout(Some(PATIENCE))
            .set_number_of_retries(1);
        let primary = self.address.client(CONNECTING).await?;
        let connection = ConnectionManager::new_lazy_with_config(primary, config)?;
        *self.current() = Some(connection.clone());
        Ok(connection)
    }

    fn current(&self) -> MutexGuard<'_, Option<ConnectionManager>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
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
