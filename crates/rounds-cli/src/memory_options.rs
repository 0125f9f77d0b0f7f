//! Limits of the ledger in memory on the command line.

use clap::Args;
use gallery::Gallery;
use rounds::{RoundsBuilder, ledger::MemoryLedger};

/// `MemoryLedger` documents each option. Every option is also an environment variable.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Memory, without --store and --data")]
pub(crate) struct MemoryOptions {
    /// Memory of claims, in bytes [default: 402653184]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_MEMORY_CLAIM_BYTES", hide_short_help = true)]
    memory_claim_bytes: Option<usize>,
    /// Memory of the claims of callers without a principal, in bytes [default: half of that of claims]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_MEMORY_ANONYMOUS_BYTES", hide_short_help = true)]
    memory_anonymous_bytes: Option<usize>,
    /// Memory of the claims of one principal, in bytes [default: a tenth of that of claims]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_MEMORY_PRINCIPAL_BYTES", hide_short_help = true)]
    memory_principal_bytes: Option<usize>,
    /// Memory of replies, in bytes [default: 67108864]
    #[arg(long, value_name = "BYTES", env = "ROUNDS_MEMORY_REPLY_BYTES", hide_short_help = true)]
    memory_reply_bytes: Option<usize>,
    /// Memory of the records of flows, in bytes
    #[arg(long, value_name = "BYTES", env = "ROUNDS_MEMORY_FLOW_BYTES", hide_short_help = true)]
    memory_flow_bytes: Option<usize>,
    /// Memory of tasks and decisions, in bytes
    #[arg(long, value_name = "BYTES", env = "ROUNDS_MEMORY_DOCUMENT_BYTES", hide_short_help = true)]
    memory_document_bytes: Option<usize>,
}

impl MemoryOptions {
    /// A server with a ledger in memory that has the limits that were set.
    pub(crate) fn join(&self) -> RoundsBuilder<Gallery> {
        type Set = fn(MemoryLedger, usize) -> MemoryLedger;
        let settings: [(Option<usize>, Set); 6] = [
            // First, because the defaults of the shares follow from it.
            (self.memory_claim_bytes, MemoryLedger::with_claim_bytes),
            (self.memory_anonymous_bytes, MemoryLedger::with_anonymous_bytes),
            (self.memory_principal_bytes, MemoryLedger::with_principal_bytes),
            (self.memory_reply_bytes, MemoryLedger::with_reply_bytes),
            (self.memory_flow_bytes, MemoryLedger::with_flow_bytes),
            (self.memory_document_bytes, MemoryLedger::with_document_bytes),
        ];
        let ledger = settings.into_iter().fold(MemoryLedger::new(), |ledger, (to, set)| match to {
            Some(bytes) => set(ledger, bytes),
            None => ledger,
        });
        gallery::rounds().ledger(ledger)
    }
}
