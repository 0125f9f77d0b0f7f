//! A bank with a few accounts. Money moves between them and is neither made nor lost.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rmcp::schemars;
use rounds::{Durable, FlowError, time::BoxFuture};
use serde::Deserialize;

use crate::Gallery;

/// The accounts, and what each has at first.
pub const ACCOUNTS: [(&str, i64); 3] = [("alice", 1_000_000), ("bob", 1_000_000), ("carol", 1_000_000)];

/// A bank and its accounts. [`Gallery::new`] keeps them in memory; a server with a store keeps them there, and moves
/// money in a transaction of the store.
pub trait Bank: Send + Sync + 'static {
    /// Moves money once in this flow, however often its legs are sent.
    fn transfer<'a>(
        &'a self,
        flow: &'a Durable<Gallery>,
        transfer: &'a Transfer,
    ) -> BoxFuture<'a, Result<(), FlowError>>;

    /// The balance of each account.
    fn balances(&self) -> BoxFuture<'_, Result<BTreeMap<String, i64>, FlowError>>;
}

/// Money to be moved.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
pub struct Transfer {
    /// The account to take it from
    pub from: String,
    /// The account to give it to
    pub to: String,
    /// How much
    #[schemars(range(min = 1))]
    pub amount: u32,
}

impl Transfer {
    /// The error if the account to take it from is not there, or has too little.
    pub fn not_covered(&self) -> FlowError {
        FlowError::failed(format!("There is no account {} with {}.", self.from, self.amount))
    }

    /// The error if the account to give it to is not there.
    pub fn no_receiver(&self) -> FlowError {
        FlowError::failed(format!("There is no account {}.", self.to))
    }
}

/// A bank that keeps its accounts in memory.
#[derive(Debug)]
pub(crate) struct BankInMemory(Mutex<BTreeMap<String, i64>>);

impl Default for BankInMemory {
    fn default() -> Self {
        Self(Mutex::new(ACCOUNTS.map(|(name, balance)| (name.to_owned(), balance)).into()))
    }
}

impl BankInMemory {
    fn accounts(&self) -> MutexGuard<'_, BTreeMap<String, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, transfer: &Transfer) -> Result<(), FlowError> {
        let amount = i64::from(transfer.amount);
        let mut accounts = self.accounts();
        if !accounts.contains_key(&transfer.to) {
            return Err(transfer.no_receiver());
        }
        let from = accounts.get_mut(&transfer.from).filter(|balance| **balance >= amount);
        *from.ok_or_else(|| transfer.not_covered())? -= amount;
        *accounts.entry(transfer.to.clone()).or_default() += amount;
        Ok(())
    }
}

impl Bank for BankInMemory {
    fn transfer<'a>(
        &'a self,
        flow: &'a Durable<Gallery>,
        transfer: &'a Transfer,
    ) -> BoxFuture<'a, Result<(), FlowError>> {
        Box::pin(flow.try_once("transfer", async |_: &Gallery, _: &str| self.run(transfer)))
    }

    fn balances(&self) -> BoxFuture<'_, Result<BTreeMap<String, i64>, FlowError>> {
        let balances = self.accounts().clone();
        Box::pin(ready(Ok(balances)))
    }
}
