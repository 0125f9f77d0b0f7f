//! An airline. It counts its calls, and recognises a repeated charge by its idempotency key.

use std::{
    collections::BTreeSet,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rounds::{FlowError, time::BoxFuture};
use serde_json::{Value, json};

/// An airline and its records. [`Gallery::new`](crate::Gallery::new) keeps them in memory; the instances of a fleet
/// share one airline with records in Redis.
pub trait Airline: Send + Sync + 'static {
    /// The price of a flight, the same for all flights.
    fn quote(&self) -> BoxFuture<'_, Result<u32, FlowError>>;

    /// Charges for a flight, unless this key has been charged already.
    fn charge<'a>(&'a self, key: &'a str, flight: &'a str) -> BoxFuture<'a, Result<(), FlowError>>;

    /// The numbers of quotes, charges and duplicate charges.
    fn counted(&self) -> BoxFuture<'_, Result<Counted, FlowError>>;
}

/// The price of every flight.
pub const PRICE: u32 = 140;

/// The calls that an airline has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Number of quotes.
    pub quotes: u64,
    /// Number of charges.
    pub charges: u64,
    /// Number of charges that were skipped because their key had been charged already.
    pub duplicates: u64,
}

impl Counted {
    pub(crate) fn to_json(self) -> Value {
        json!({"quotes": self.quotes, "charges": self.charges, "duplicates": self.duplicates})
    }
}

/// An airline that keeps its records in memory.
#[derive(Debug, Default)]
pub(crate) struct InMemory(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    quotes: u64,
    /// The keys of the charges.
    charges: BTreeSet<String>,
    duplicates: u64,
}

impl Airline for InMemory {
    fn quote(&self) -> BoxFuture<'_, Result<u32, FlowError>> {
        self.books().quotes += 1;
        Box::pin(ready(Ok(PRICE)))
    }

    fn charge<'a>(&'a self, key: &'a str, _flight: &'a str) -> BoxFuture<'a, Result<(), FlowError>> {
        let mut books = self.books();
        if !books.charges.insert(key.to_owned()) {
            books.duplicates += 1;
        }
        Box::pin(ready(Ok(())))
    }

    fn counted(&self) -> BoxFuture<'_, Result<Counted, FlowError>> {
        let Books { quotes, charges, duplicates } = &*self.books();
        let counted = Counted { quotes: *quotes, charges: charges.len() as u64, duplicates: *duplicates };
        Box::pin(ready(Ok(counted)))
    }
}

impl InMemory {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[tokio::test]
async fn a_charge_that_comes_again_under_its_key_is_not_made() -> Result<(), FlowError> {
    let airline = InMemory::default();
    for key in ["a", "a", "b"] {
        airline.charge(key, "a flight").await?;
    }
    assert_eq!(airline.counted().await?, Counted { quotes: 0, charges: 2, duplicates: 1 });
    Ok(())
}
