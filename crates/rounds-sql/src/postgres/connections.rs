//! The connections: every call ends with a reply or an error in bounded time, and lost connections are replaced.
//!
//! sqlx's own pool sends a ping whenever a connection is taken or given back. Here a call is one round trip.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, FromRow, PgConnection, Postgres, QueryBuilder,
    postgres::{PgArguments, PgConnectOptions, PgRow},
    query::QueryAs,
};
use tokio::sync::Semaphore;

use crate::error::StoreError;

/// Limit on the connections of one store.
const MOST: usize = 8;

/// A statement with its values, of which one row is expected.
pub(crate) type Call<T> = QueryAs<'static, Postgres, T, PgArguments>;

#[derive(Debug)]
pub(crate) struct Connections {
    options: PgConnectOptions,
    idle: Mutex<Vec<PgConnection>>,
    permits: Semaphore,
    timeout: Duration,
}

impl Connections {
    pub(crate) fn new(options: PgConnectOptions, timeout: Duration) -> Self {
        Self { options, idle: Mutex::default(), permits: Semaphore::new(MOST), timeout }
    }

    /// The options of its connections, for one that is used in another way.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// Makes a call. If the connection breaks during the call, makes it once more, with true as the argument: the first
    /// call may have happened, so every function that changes something must recognise its own repetition.
    pub(crate) async fn call<T>(&self, call: impl Fn(bool) -> Call<T>) -> Result<T, StoreError>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        self.bounded(async {
            match self.once(call(false)).await {
                Err(error) if StoreError::is_lost_connection(&error) => {
                    // The others were lost together with it.
                    self.idle().clear();
                    self.once(call(true)).await
                }
                outcome => outcome,
            }
        })
        .await
    }

    /// Reads all rows of a query. If the connection breaks, reads them once more.
    pub(crate) async fn all<T>(&self, query: impl Fn() -> QueryBuilder<Postgres>) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        self.bounded(async {
            match self.all_once(query()).await {
                Err(error) if StoreError::is_lost_connection(&error) => {
                    self.idle().clear();
                    self.all_once(query()).await
                }
                outcome => outcome,
            }
        })
        .await
    }

    async fn all_once<T>(&self, mut query: QueryBuilder<Postgres>) -> Result<Vec<T>, sqlx::Error>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let _permit = self.permits.acquire().await;
        let mut connection = self.connection().await?;
        let rows = query.build_query_as().fetch_all(&mut connection).await?;
        self.idle().push(connection);
        Ok(rows)
    }

    async fn connection(&self) -> Result<PgConnection, sqlx::Error> {
        let idle = self.idle().pop();
        match idle {
            Some(connection) => Ok(connection),
            None => self.options.connect().await,
        }
    }

    /// Runs it within the timeout.
    pub(crate) async fn bounded<T>(&self, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        match tokio::time::timeout(self.timeout, work).await {
            Ok(outcome) => outcome.map_err(StoreError::of),
            Err(_) => {
                // A server that does not answer on one connection may be gone, and the next call looks it up again.
                self.idle().clear();
                Err(StoreError::Silent { after: self.timeout })
            }
        }
    }

    async fn once<T>(&self, call: Call<T>) -> Result<T, sqlx::Error>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        // Never closed.
        let _permit = self.permits.acquire().await;
        let mut connection = self.connection().await?;
        let row = call.fetch_one(&mut connection).await;
        match &row {
            // Not kept after an error, nor if this future is dropped.
            Err(error) if is_wrong_server(error) => self.idle().clear(),
            Err(_) => {}
            Ok(_) => self.idle().push(connection),
        }
        row
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server has become a replica, so that its name may lead to another one by now.
fn is_wrong_server(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().is_some_and(|code| code == "25006"))
}
