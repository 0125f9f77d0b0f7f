//! Effects in the author's own transaction.

mod database;

use rmcp::model::InputRequiredResult;
use rounds::{Durable, FlowError, Round, steps::Step};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::Pool;

pub use database::TransactionDatabase;

use crate::error::OpenError;

/// Effects that commit together with the record that they have run.
///
/// A table of ours in the author's database has one row for each flow and effect. The row is written in the author's
/// transaction, together with the effect's value: effect and row commit together or not at all. A database effect
/// therefore runs exactly once in a flow, even if the process is killed at any step or the ledger is lost. The database
/// need not know any idempotency key. [`prepare`] creates the table.
///
/// ```
/// use rounds::{Durable, FlowError};
/// use rounds_sql::{OnceIn as _, PoolOf as _};
/// use sqlx::SqlitePool;
///
/// struct Shop {
///     pool: SqlitePool,
/// }
///
/// async fn buy(flow: Durable<Shop>, item: String) -> Result<String, FlowError> {
///     if !flow.confirm(format!("Buy {item}?")).await? {
///         return Ok("Not bought.".to_owned());
///     }
///     let pool = flow.pool(|shop| &shop.pool);
///     let number: i64 = flow
///         .once_in(&pool, "order", async |tx, _key| {
///             let order = sqlx::query_scalar("INSERT INTO orders (item) VALUES ($1) RETURNING number");
///             Ok(order.bind(&item).fetch_one(tx).await?)
///         })
///         .await?;
///     Ok(format!("Order {number}."))
/// }
/// ```
///
/// # What is once
///
/// The flow. The first leg of a flow has no identity that a client could retry with: a call that is sent again from the
/// start is another flow. Ask first, or use an idempotency key.
///
/// # Locks and time
///
/// The transaction is open while the effect runs, so keep the effect short and free of calls to other services. SQLite
/// has one writer: while the effect runs, no other step can write to the same file, and a ledger in that file cannot
/// renew its leases. Bound the effect well below the [lease](rounds::Limits::lease), or keep the ledger in another file.
/// In Postgres a second leg waits for the row of the first.
///
/// # What the table shows
///
/// The value is written as plain JSON: it is in the author's own database, beside what the effect has written there.
pub trait OnceIn {
    /// Runs an effect once in this flow, in a transaction of this database, and returns its recorded value when the
    /// handler runs again. The effect gets the connection of the transaction, and its idempotency key.
    ///
    /// If the effect fails, the transaction is rolled back. An [`EffectError::Database`] ends the leg with a retryable
    /// error, so that an equal leg runs the effect again.
    ///
    /// # Errors
    ///
    /// Those of [`Durable::try_once`], [`Round::try_once`] and [`Step::try_once`]; [`FlowError::Retry`] if the database
    /// cannot be reached, or if it is not known whether the transaction was committed: the next leg finds out.
    fn once_in<DB, T>(
        &self,
        pool: &Pool<DB>,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> impl Future<Output = Result<T, FlowError>>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned;
}

impl<S: Send + Sync + 'static> OnceIn for Durable<S> {
    async fn once_in<DB, T>(
        &self,
        pool: &Pool<DB>,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> Result<T, FlowError>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned,
    {
        self.try_once(name, async |_: &S, key: &str| in_transaction(pool, key, effect).await).await
    }
}

impl<R: From<InputRequiredResult>> OnceIn for Round<R> {
    async fn once_in<DB, T>(
        &self,
        pool: &Pool<DB>,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> Result<T, FlowError>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned,
    {
        let key = self.once_key(name);
        self.try_once(name, async || in_transaction(pool, &key, effect).await).await
    }
}

impl<S, P> OnceIn for Step<S, P> {
    async fn once_in<DB, T>(
        &self,
        pool: &Pool<DB>,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> Result<T, FlowError>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned,
    {
        let key = self.once_key(name);
        self.try_once(name, async || in_transaction(pool, &key, effect).await).await
    }
}

/// The pool of the server that a durable handler belongs to. Such a handler has no `&self`, and needs the pool for
/// [`OnceIn::once_in`].
pub trait PoolOf<S> {
    /// A pool of the server. Use it only in [`OnceIn::once_in`]: statements outside of it run again whenever the handler
    /// does.
    fn pool<DB: sqlx::Database>(&self, pool: impl FnOnce(&S) -> &Pool<DB>) -> Pool<DB>;
}

impl<S: Send + Sync + 'static> PoolOf<S> for Durable<S> {
    fn pool<DB: sqlx::Database>(&self, pool: impl FnOnce(&S) -> &Pool<DB>) -> Pool<DB> {
        self.handle_of(|server| pool(server).clone())
    }
}

/// Reason why an effect in a transaction failed. The transaction is rolled back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EffectError {
    /// The database returned an error, or could not be reached. The leg ends with a retryable error.
    #[error("the database did not carry out the effect")]
    Database(#[from] sqlx::Error),
    /// An error of the author, such as [`FlowError::failed`] with words for the user.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl From<EffectError> for FlowError {
    fn from(error: EffectError) -> Self {
        match error {
            EffectError::Database(error) => Self::retry(error),
            EffectError::Flow(error) => error,
        }
    }
}

/// Creates the table of effects in the author's database, and brings it up to date. Call it when the server starts.
///
/// Several instances may call it at the same time. It also removes the rows of flows that are long over: those older
/// than forty days, while no flow takes more than thirty.
///
/// # Errors
///
/// [`OpenError`] if the database cannot be reached or written, or was prepared by a newer version of this crate.
pub async fn prepare<DB: TransactionDatabase>(pool: &Pool<DB>) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await?;
    DB::migrate(&mut connection).await?;
    Ok(DB::sweep(&mut connection).await?)
}

/// Runs an effect in a transaction, unless its row is there.
async fn in_transaction<DB: TransactionDatabase, T: Serialize + DeserializeOwned>(
    pool: &Pool<DB>,
    key: &str,
    effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
) -> Result<T, FlowError> {
    let mut transaction = DB::begin(pool).await.map_err(FlowError::retry)?;
    if let Some(value) = DB::take(&mut transaction, key).await.map_err(FlowError::retry)? {
        return read(&value);
    }
    // Dropping the transaction rolls it back.
    let value = effect(&mut transaction, key).await?;
    let json = serde_json::to_string(&value).map_err(FlowError::State)?;
    DB::record(&mut transaction, key, &json).await.map_err(FlowError::retry)?;
    match transaction.commit().await {
        Ok(()) => Ok(value),
        // It may have happened: the connection may have been lost after that.
        Err(error) => match DB::find(pool, key).await {
            Ok(Some(_)) => Ok(value),
            _ => Err(FlowError::retry(error)),
        },
    }
}

fn read<T: DeserializeOwned>(value: &str) -> Result<T, FlowError> {
    serde_json::from_str(value).map_err(FlowError::StateUnreadable)
}
