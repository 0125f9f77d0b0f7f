//! An airline. It counts what it was asked to do, and knows a charge that comes again by its key.

use std::{
    collections::BTreeSet,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rounds::{FlowError, time::BoxFuture};
use serde_json::{Value, json};

/// An airline and its books. Those of [`Gallery::new`](crate::Gallery::new) are in memory; the instances of a fleet share one whose
/// books are elsewhere.
pub trait Airline: Send + Sync + 'static {
    /// What a flight costs: the same for all of them.
    fn quote(&self) -> BoxFuture<'_, Result<u32, FlowError>>;

    /// Charges for a flight, unless it has under this key already.
    fn charge<'a>(&'a self, key: &'a str, flight: &'a str) -> BoxFuture<'a, Result<(), FlowError>>;

    /// How many quotes, charges and duplicate charges there were.
    fn counted(&self) -> BoxFuture<'_, Result<Counted, FlowError>>;
}

/// What every flight costs.
pub const PRICE: u32 = 140;

/// What an airline has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// How often a price was asked for.
    pub quotes: u64,
    /// How many charges were made.
    pub charges: u64,
    /// How many were not, as they had been already.
    pub duplicates: u64,
}

impl Counted {
    pub(crate) fn to_json(self) -> Value {
        json!({"quotes": self.quotes, "charges": self.charges, "duplicates": self.duplicates})
    }
}

/// An airline that forgets when its process ends.
#[derive(Debug, Default)]
pub(crate) struct InMemory(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    quotes: u64,
    /// The keys of the charges that were made.
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
