//! A server whose store is SQLite or Postgres: its ledger, its relay, and an airline and a bank in tables of their own.

use std::{collections::BTreeMap, error::Error, time::Duration};

use gallery::{ACCOUNTS, Airline, Bank, Counted, Gallery, PRICE, Transfer};
use rounds::{Durable, FlowError, RoundsBuilder, time::BoxFuture};
use rounds_sql::{
    EffectError, OnceIn as _, PostgresLedger, PostgresLedgerBuilder, PostgresRelay, PostgresRelayBuilder, SqliteLedger,
    SqliteLedgerBuilder,
};
use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};

use crate::store_options::{StoreOptions, set};

type Joined = Result<RoundsBuilder<Gallery>, Box<dyn Error + Send + Sync>>;

/// Timeout of the airline and the bank.
const PATIENCE: Duration = Duration::from_secs(2);

/// Creates the tables of the airline and the bank. Several instances may do so at the same time.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS gallery_quotes (number BIGINT NOT NULL PRIMARY KEY, quotes BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS gallery_charges (
        idempotency_key TEXT NOT NULL PRIMARY KEY, flight TEXT NOT NULL, attempts BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS gallery_accounts (name TEXT NOT NULL PRIMARY KEY, balance BIGINT NOT NULL);
";

/// The gallery on a SQLite file.
pub(crate) async fn join_sqlite(file: &str, options: &StoreOptions) -> Joined {
    let ledger = set(SqliteLedger::builder(file), options.store_timeout, SqliteLedgerBuilder::timeout);
    let ledger = set(ledger, options.store_anonymous_bytes, SqliteLedgerBuilder::anonymous_bytes);
    let ledger = set(ledger, options.store_principal_bytes, SqliteLedgerBuilder::principal_bytes);
    let ledger = set(ledger, options.store_freeing_bytes, SqliteLedgerBuilder::freeing_bytes).open().await?;
    let options =
        SqliteConnectOptions::new().filename(file).journal_mode(SqliteJournalMode::Wal).busy_timeout(PATIENCE);
    let pool = SqlitePoolOptions::new().max_connections(4).acquire_timeout(PATIENCE).connect_with(options).await?;
    rounds_sql::prepare(&pool).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    open_accounts_sqlite(&pool).await?;
    let gallery = Gallery::flying(SqliteShop(pool.clone())).banking(SqliteShop(pool));
    Ok(gallery::rounds_with(gallery).ledger(ledger).register())
}

/// The gallery as one instance of a fleet on a Postgres.
pub(crate) async fn join_postgres(url: &str, instance: &str, options: &StoreOptions) -> Joined {
    let ledger = set(PostgresLedger::builder(url), options.store_timeout, PostgresLedgerBuilder::timeout);
    let ledger = set(ledger, options.store_anonymous_bytes, PostgresLedgerBuilder::anonymous_bytes);
    let ledger = set(ledger, options.store_principal_bytes, PostgresLedgerBuilder::principal_bytes);
    let ledger = set(ledger, options.store_freeing_bytes, PostgresLedgerBuilder::freeing_bytes).connect().await?;
    let relay = set(PostgresRelay::builder(url, instance), options.store_timeout, PostgresRelayBuilder::timeout);
    let relay = relay.connect().await?;
    let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(PATIENCE).connect(url).await?;
    rounds_sql::prepare(&pool).await?;
    let mut transaction = pool.begin().await?;
    // Postgres may fail to create the same table twice at the same time.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('gallery'))").execute(&mut *transaction).await?;
    sqlx::raw_sql(TABLES).execute(&mut *transaction).await?;
    transaction.commit().await?;
    open_accounts_postgres(&pool).await?;
    let gallery = Gallery::flying(PostgresShop(pool.clone())).banking(PostgresShop(pool));
    Ok(gallery::rounds_with(gallery).ledger(ledger).relay(relay).register())
}

/// An airline and a bank. The statements are the same for both databases.
macro_rules! shop_on {
    ($shop:ident, $pool:ty, $open_accounts:ident) => {
        struct $shop($pool);

        async fn $open_accounts(pool: &$pool) -> Result<(), sqlx::Error> {
            for (name, balance) in ACCOUNTS {
                let open = sqlx::query("INSERT INTO gallery_accounts VALUES ($1, $2) ON CONFLICT DO NOTHING");
                open.bind(name).bind(balance).execute(pool).await?;
            }
            Ok(())
        }

        impl Airline for $shop {
            fn quote(&self) -> BoxFuture<'_, Result<u32, FlowError>> {
                Box::pin(async {
                    let count = sqlx::query(
                        "INSERT INTO gallery_quotes VALUES (1, 1)
                         ON CONFLICT (number) DO UPDATE SET quotes = gallery_quotes.quotes + 1",
                    );
                    count.execute(&self.0).await.map_err(FlowError::retry)?;
                    Ok(PRICE)
                })
            }

            fn charge<'a>(&'a self, key: &'a str, flight: &'a str) -> BoxFuture<'a, Result<(), FlowError>> {
                Box::pin(async move {
                    let charge = sqlx::query(
                        "INSERT INTO gallery_charges VALUES ($1, $2, 1)
                         ON CONFLICT (idempotency_key) DO UPDATE SET attempts = gallery_charges.attempts + 1",
                    );
                    charge.bind(key).bind(flight).execute(&self.0).await.map_err(FlowError::retry)?;
                    Ok(())
                })
            }

            fn counted(&self) -> BoxFuture<'_, Result<Counted, FlowError>> {
                Box::pin(async {
                    let counted = sqlx::query_as::<_, (i64, i64, i64)>(
                        "SELECT (SELECT coalesce(max(quotes), 0) FROM gallery_quotes), count(*),
                                cast(coalesce(sum(attempts - 1), 0) AS BIGINT)
                         FROM gallery_charges",
                    );
                    let (quotes, charges, duplicates) = counted.fetch_one(&self.0).await.map_err(FlowError::retry)?;
                    let [quotes, charges, duplicates] = [quotes, charges, duplicates].map(i64::unsigned_abs);
                    Ok(Counted { quotes, charges, duplicates })
                })
            }
        }

        impl Bank for $shop {
            fn transfer<'a>(
                &'a self,
                flow: &'a Durable<Gallery>,
                transfer: &'a Transfer,
            ) -> BoxFuture<'a, Result<(), FlowError>> {
                Box::pin(flow.once_in(&self.0, "transfer", async move |tx, _key| {
                    let Transfer { from, to, amount } = transfer;
                    let take = sqlx::query(
                        "UPDATE gallery_accounts SET balance = balance - $2 WHERE name = $1 AND balance >= $2",
                    );
                    let taken = take.bind(from).bind(i64::from(*amount)).execute(&mut *tx).await?;
                    if taken.rows_affected() != 1 {
                        return Err(EffectError::Flow(transfer.not_covered()));
                    }
                    let give = sqlx::query("UPDATE gallery_accounts SET balance = balance + $2 WHERE name = $1");
                    let given = give.bind(to).bind(i64::from(*amount)).execute(&mut *tx).await?;
                    match given.rows_affected() {
                        1 => Ok(()),
                        // What was taken is rolled back.
                        _ => Err(EffectError::Flow(transfer.no_receiver())),
                    }
                }))
            }

            fn balances(&self) -> BoxFuture<'_, Result<BTreeMap<String, i64>, FlowError>> {
                Box::pin(async {
                    let balances = sqlx::query_as::<_, (String, i64)>("SELECT name, balance FROM gallery_accounts");
                    let balances = balances.fetch_all(&self.0).await.map_err(FlowError::retry)?;
                    Ok(balances.into_iter().collect())
                })
            }
        }
    };
}

shop_on!(SqliteShop, SqlitePool, open_accounts_sqlite);
shop_on!(PostgresShop, PgPool, open_accounts_postgres);
