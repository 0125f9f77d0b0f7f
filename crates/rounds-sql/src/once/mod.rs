//! Effects in the author's own transaction.

mod database;

use std::time::Duration;

use rmcp::{ErrorData, model::InputRequiredResult};
use rounds::{Durable, FlowError, Round, ledger::kit::SelfClaimed, steps::Step};
use serde::{Serialize, de::DeserializeOwned};
use sqlx::Pool;

pub use database::TransactionDatabase;

use crate::{
    claims::{clock, random},
    error::{OpenError, StoreError},
};

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
/// The flow. The first leg of a flow has no identity that a client could retry with, unless the client sends an idempotency
/// key: without one, a call that is sent again from the start is another flow. Ask first, or use a key.
///
/// # The row is the claim
///
/// The effect has no claim in the ledger, and no lease. Before it runs, the ledger is asked whether this leg still has its
/// round, so that nothing runs in a flow that was cancelled. If two legs reach the effect at the same time, because the
/// first was thought to be lost, the row decides: the second waits for it, and gets its value.
///
/// A row is kept until a day after the deadline of its flow. Later effects and [`prepare`] remove it then.
///
/// # Locks and time
///
/// The transaction is open while the effect runs, so keep the effect short and free of calls to other services.
///
/// SQLite has one writer: while the effect runs, no other step can write to the same file, and a ledger in that file cannot
/// renew its leases. The transaction is therefore rolled back after a sixth of the [lease](rounds::Limits::lease), which
/// is 5 seconds by default, and the leg ends with a retryable error. If an effect needs longer, keep the ledger in another
/// file, and set the time with [`once_in_within`](Self::once_in_within). A statement that runs is not interrupted: the
/// transaction is rolled back when it ends.
///
/// Postgres has no such bound unless you set one. There a second leg waits for the row of the first.
///
/// # What the table shows
///
/// The value is written as plain JSON: it is in the author's own database, beside what the effect has written there.
pub trait OnceIn {
    /// Runs an effect once in this flow, in a transaction of this database, and returns its recorded value when the
    /// handler runs again. The effect gets the connection of the transaction, and its idempotency key.
    ///
    /// If the effect fails, the transaction is rolled back. What an [`EffectError`] means for the leg is said there.
    ///
    /// # Errors
    ///
    /// Those of [`Durable::try_once`], [`Round::try_once`] and [`Step::try_once`]; [`FlowError::Retry`] if the database
    /// cannot be reached or is busy, or if it is not known whether the transaction was committed: the next leg finds out.
    fn once_in<DB, T>(
        &self,
        pool: &Pool<DB>,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> impl Future<Output = Result<T, FlowError>>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned,
    {
        self.once_in_bounded(pool, None, name, effect)
    }

    /// Runs an effect as [`once_in`](Self::once_in) does. Its transaction may be open for this time, and is then rolled
    /// back.
    ///
    /// # Errors
    ///
    /// Those of [`once_in`](Self::once_in); [`FlowError::Retry`] with [`EffectError::TooLong`] if the time is over.
    fn once_in_within<DB, T>(
        &self,
        pool: &Pool<DB>,
        time: Duration,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> impl Future<Output = Result<T, FlowError>>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned,
    {
        self.once_in_bounded(pool, Some(time), name, effect)
    }

    /// Runs an effect; without a time, with the bound of the database.
    #[doc(hidden)]
    fn once_in_bounded<DB, T>(
        &self,
        pool: &Pool<DB>,
        time: Option<Duration>,
        name: &str,
        effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
    ) -> impl Future<Output = Result<T, FlowError>>
    where
        DB: TransactionDatabase,
        T: Serialize + DeserializeOwned;
}

macro_rules! once_in_on {
    (($($generics:tt)*), $shape:ty) => {
        impl<$($generics)*> OnceIn for $shape {
            async fn once_in_bounded<DB, T>(
                &self,
                pool: &Pool<DB>,
                time: Option<Duration>,
                name: &str,
                effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
            ) -> Result<T, FlowError>
            where
                DB: TransactionDatabase,
                T: Serialize + DeserializeOwned,
            {
                self.try_once_self_claimed(name, async |claim| in_transaction(pool, time, claim, effect).await).await
            }
        }
    };
}

once_in_on!((S: Send + Sync + 'static), Durable<S>);
once_in_on!((R: From<InputRequiredResult>), Round<R>);
once_in_on!((S, P), Step<S, P>);

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
    /// The database returned an error, or could not be reached.
    ///
    /// If that may pass, the leg ends with a retryable error: a lost connection, a busy or full database, a serialisation
    /// failure. Otherwise the leg ends with an internal error, and the log has the cause: a violated constraint or a mistake in
    /// a statement would fail again however often the client sent the request. An effect that expects such an error
    /// matches on it, and returns [`FlowError::failed`] with words for the user.
    #[error("the database did not carry out the effect")]
    Database(#[from] sqlx::Error),
    /// The transaction was open for too long. The leg ends with a retryable error.
    #[error(
        "an effect's transaction was open for more than {after:?} and was rolled back: make the effect shorter, or keep the \
         ledger in another file than the effect's and set the time with `once_in_within`"
    )]
    TooLong {
        /// How long it may be open.
        after: Duration,
    },
    /// An error of the author, such as [`FlowError::failed`] with words for the user.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl From<EffectError> for FlowError {
    fn from(error: EffectError) -> Self {
        match error {
            EffectError::Flow(error) => error,
            EffectError::Database(error) if !StoreError::may_pass(&error) => refused(&error),
            EffectError::Database(error) => Self::retry(StoreError::of(error)),
            EffectError::TooLong { .. } => Self::retry(error),
        }
    }
}

/// The error of a leg whose effect would fail again.
fn refused(error: &sqlx::Error) -> FlowError {
    tracing::error!(
        target: "rounds",
        error = error as &dyn std::error::Error,
        "the database refused an effect, which would fail again: correct its statements or the data; if the table \
         `rounds_effects` is missing, call `rounds_sql::prepare` when the server starts"
    );
    let words = "the database refused an effect of this call, and nothing of the effect was kept: sending the call again \
                 does not help; the server's log has the cause";
    FlowError::Protocol(ErrorData::internal_error(words, None))
}

/// Creates the table of effects in the author's database, and brings it up to date. Call it when the server starts.
///
/// Several instances may call it at the same time. It also removes the rows of flows that are over.
///
/// # Errors
///
/// [`OpenError`] if the database cannot be reached or written, or was prepared by a newer version of this crate.
pub async fn prepare<DB: TransactionDatabase>(pool: &Pool<DB>) -> Result<(), OpenError> {
    DB::migrate(&mut *pool.acquire().await?).await?;
    while DB::sweep(pool).await? {}
    Ok(())
}

/// Runs an effect in a transaction, unless its row is there.
async fn in_transaction<DB: TransactionDatabase, T: Serialize + DeserializeOwned>(
    pool: &Pool<DB>,
    time: Option<Duration>,
    claim: SelfClaimed,
    effect: impl AsyncFnOnce(&mut DB::Connection, &str) -> Result<T, EffectError>,
) -> Result<T, EffectError> {
    let mut transaction = DB::begin(pool).await?;
    let run = async {
        if let Some(value) = DB::take(&mut transaction, &claim.key, kept_until(claim.kept_for)).await? {
            return read(&value).map(Ran::Before);
        }
        let value = effect(&mut transaction, &claim.key).await?;
        let json = serde_json::to_string(&value).map_err(FlowError::State)?;
        DB::record(&mut transaction, &claim.key, &json).await?;
        Ok(Ran::Now(value))
    };
    // After an error, dropping the transaction rolls it back.
    let value = match bounded(time.or_else(|| DB::bound(claim.lease)), run).await? {
        Ran::Before(value) => return Ok(value),
        Ran::Now(value) => value,
    };
    if let Err(error) = transaction.commit().await {
        // It may have happened: the connection may have been lost after that.
        let Ok(Some(_)) = DB::find(pool, &claim.key).await else { return Err(error.into()) };
    }
    sweep_sometimes(pool);
    Ok(value)
}

/// When an effect has run.
enum Ran<T> {
    Before(T),
    Now(T),
}

/// The time limit is inside of the effect, which comes to its end: the transaction is rolled back.
async fn bounded<T>(
    time: Option<Duration>,
    run: impl Future<Output = Result<T, EffectError>>,
) -> Result<T, EffectError> {
    let Some(after) = time else { return run.await };
    tokio::time::timeout(after, run).await.unwrap_or(Err(EffectError::TooLong { after }))
}

fn read<T: DeserializeOwned>(value: &str) -> Result<T, EffectError> {
    Ok(serde_json::from_str(value).map_err(FlowError::StateUnreadable)?)
}

/// A day after the flow is over: rows are small, and clocks differ.
fn kept_until(kept_for: Duration) -> i64 {
    const LONGER: Duration = Duration::from_secs(24 * 60 * 60);
    let millis = i64::try_from(kept_for.saturating_add(LONGER).as_millis()).unwrap_or(i64::MAX);
    clock().saturating_add(millis)
}

/// Lets about one effect in sixteen remove the rows of flows that are over, in the background.
fn sweep_sometimes<DB: TransactionDatabase>(pool: &Pool<DB>) {
    let [draw] = random();
    if draw >= 16 {
        return;
    }
    let pool = pool.clone();
    tokio::spawn(async move {
        if let Err(error) = DB::sweep(&pool).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(target: "rounds", error, "old rows of `rounds_effects` could not be removed; a later effect tries again");
        }
    });
}
