//! An airline in memory. It counts what it was asked to do, and knows a charge that comes again by its key.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct Airline(Mutex<Books>);

#[derive(Debug, Default)]
struct Books {
    quotes: u64,
    /// The keys of the charges that were made.
    charges: BTreeSet<String>,
    duplicates: u64,
}

impl Airline {
    /// What a flight costs: the same for all of them.
    pub(crate) fn quote(&self) -> u32 {
        self.books().quotes += 1;
        140
    }

    /// Charges, unless it has under this key already.
    pub(crate) fn charge(&self, key: &str) {
        let mut books = self.books();
        if !books.charges.insert(key.to_owned()) {
            books.duplicates += 1;
        }
    }

    pub(crate) fn counted(&self) -> Value {
        let books = self.books();
        json!({"quotes": books.quotes, "charges": books.charges.len(), "duplicates": books.duplicates})
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[test]
fn a_charge_that_comes_again_under_its_key_is_not_made() {
    let airline = Airline::default();
    for key in ["a", "a", "b"] {
        airline.charge(key);
    }
    assert_eq!(airline.counted(), json!({"quotes": 0, "charges": 2, "duplicates": 1}));
}
