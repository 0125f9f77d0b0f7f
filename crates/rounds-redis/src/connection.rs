//! The connection: every call has an answer or an error in bounded time, and a connection that is lost comes back by itself.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{
    Client, ErrorKind, FromRedisValue, RedisError, ScriptInvocation, ServerErrorKind,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use rounds::ledger::LedgerError;

pub(crate) struct Connection {
    client: Client,
    current: Mutex<Current>,
    timeout: Duration,
}

struct Current {
    manager: ConnectionManager,
    /// How many there were before it.
    number: u64,
}

impl Connection {
    pub(crate) fn new(client: Client, timeout: Duration) -> Result<Self, RedisError> {
        let current = Current { manager: manager(&client, timeout)?, number: 0 };
        Ok(Self { client, current: Mutex::new(current), timeout })
    }

    /// Calls a script. One that did not get through a broken connection is called once more, as `again` has it: every script
    /// that changes something has to know itself again.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        again: &ScriptInvocation<'_>,
    ) -> Result<T, Away> {
        let (mut manager, number) = self.current();
        let calls = async {
            match call.invoke_async(&mut manager).await {
                Err(error) if is_broken(&error) => again.invoke_async(&mut manager).await,
                outcome => outcome,
            }
        };
        let outcome = match tokio::time::timeout(self.timeout, calls).await {
            Ok(outcome) => outcome.map_err(Away::Failed),
            Err(_) => Err(Away::Silent { after: self.timeout }),
        };
        outcome.inspect_err(|away| {
            if away.is_for_good() {
                self.replace(number);
            }
        })
    }

    /// Asks the server about itself.
    pub(crate) async fn info(&self, section: &str) -> Result<String, Away> {
        let (mut manager, _) = self.current();
        let mut info = redis::cmd("INFO");
        let asked = info.arg(section).query_async(&mut manager);
        let answered = tokio::time::timeout(self.timeout, asked).await;
        Ok(answered.map_err(|_| Away::Silent { after: self.timeout })??)
    }

    fn current(&self) -> (ConnectionManager, u64) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        (current.manager.clone(), current.number)
    }

    /// Does without a connection that may never be of use again. The name is looked up anew for the next.
    fn replace(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number != number {
            return;
        }
        // It is made when it is needed, so that this can fail only for what the first one would have failed for.
        if let Ok(manager) = manager(&self.client, self.timeout) {
            *current = Current { manager, number: number + 1 };
        }
    }
}

fn manager(client: &Client, timeout: Duration) -> Result<ConnectionManager, RedisError> {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(timeout))
        // `Connection::call` has the one timeout that there is.
        .set_response_timeout(None)
        .set_number_of_retries(1)
        .set_min_delay(Duration::from_millis(20))
        .set_max_delay(Duration::from_millis(100));
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

fn is_broken(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.is_connection_refusal()
}

/// Why nothing came of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Away {
    #[error("Redis did not answer within {after:?}")]
    Silent { after: Duration },
    #[error("Redis failed")]
    Failed(#[from] RedisError),
    #[error("Redis answered something else than was asked for")]
    Garbage,
}

impl Away {
    /// Whether it may stay like this on the same connection: nobody at the other end knows of it any more, or whoever is there
    /// is not the primary any more.
    fn is_for_good(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Failed(error) => matches!(
                error.kind(),
                ErrorKind::Server(
                    ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::ClusterDown
                )
            ),
            Self::Garbage => false,
        }
    }
}

impl From<Away> for LedgerError {
    fn from(away: Away) -> Self {
        Self::Unavailable(Box::new(away))
    }
}
