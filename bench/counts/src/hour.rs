//! An hour of a busy server, simulated with its ledger in memory: 2,000 calls per second with every default, each with
//! a question, an answer and an effect. No call may be rejected, and the process may not take more than 512 MiB.
//!
//! The ledger gets the time from the caller, so the hour takes seconds. It performs the steps of two legs: the first
//! leg needs none; the second claims its round, claims and records its effect, and records its reply.

use std::{fs, time::Duration};

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Ledger, LedgerError, MemoryLedger, OwnerLost, PrincipalShare,
        Retention,
    },
    time::Timestamp,
};

/// Calls per second, and number of seconds.
const CALLS: u64 = 2_000;
const SECONDS: u64 = 3_600;

/// Memory limit of the process in bytes.
const MEMORY: u64 = 512 << 20;

/// The defaults of a server: lifetime of a round and of a flow, how long a record is kept beyond that, and the lease.
const ROUND: Duration = Duration::from_secs(600);
const FLOW: Duration = Duration::from_secs(3_600);
const BEYOND: Duration = Duration::from_secs(60 + 30);
const LEASE: Duration = Duration::from_secs(30);

/// Sizes of a reply and of an effect's value.
const REPLY: [u8; 200] = [b'r'; 200];
const VALUE: [u8; 40] = [b'v'; 40];

/// Result of the simulation.
pub(crate) struct Hour {
    claims: usize,
    counted: usize,
    peak: Option<u64>,
}

impl Hour {
    /// Runs the simulation.
    pub(crate) async fn live() -> Result<Self, LedgerError> {
        let ledger = MemoryLedger::new();
        let (mut claims, mut counted, mut names) = (0, 0, Names(1));
        for second in 0..SECONDS {
            let now = Timestamp::from_millis(1_800_000_000_000 + second * 1000);
            for call in 0..CALLS {
                answer(&ledger, now + Duration::from_micros(call * 1_000_000 / CALLS), &mut names).await?;
            }
            (claims, counted) = (claims.max(ledger.claims()), counted.max(ledger.claim_bytes()));
        }
        Ok(Self { claims, counted, peak: peak() })
    }

    /// Describes the result, or fails if a limit was exceeded.
    pub(crate) fn report(&self) -> Result<String, String> {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let lived = format!(
            "{CALLS} calls per second for {SECONDS} seconds, none rejected: up to {} claims, which count as {:.0} MiB",
            self.claims,
            mib(self.counted as u64),
        );
        match self.peak {
            None => Ok(format!("{lived}; the memory of the process cannot be read on this system")),
            Some(peak) if peak <= MEMORY => Ok(format!("{lived}; the process took {:.0} MiB", mib(peak))),
            Some(peak) => Err(format!("{lived}; the process took {:.0} MiB of {:.0}", mib(peak), mib(MEMORY))),
        }
    }
}

/// The second leg of a call whose question was asked just now, so that its records are kept for the longest possible
/// time.
async fn answer(ledger: &MemoryLedger, now: Timestamp, names: &mut Names) -> Result<(), LedgerError> {
    let flow = FlowId::from_bytes(names.draw());
    let id = |what| ClaimId { flow, what };
    let bid = |answers, kept: Duration| {
        let keep = Retention { now, until: now + kept + BEYOND, share: PrincipalShare::Common };
        ClaimRequest { answers, keep, lease: LEASE, orphan: OwnerLost::Free }
    };
    let (answers, name) = (Digest::from_bytes(names.draw()), Digest::from_bytes(names.draw()));
    let (round, effect) = (id(ClaimKind::Round(1)), id(ClaimKind::Once(name)));
    let of_round = fresh(ledger.claim(round, bid(answers, ROUND)).await?);
    let of_effect = fresh(ledger.claim(effect, bid(name, FLOW)).await?);
    assert!(
        ledger.settle(effect, of_effect, Some(VALUE.to_vec()), None, vec![]).await?,
        "the claim belongs to its owner"
    );
    assert!(
        ledger.settle(round, of_round, Some(REPLY.to_vec()), None, vec![effect]).await?,
        "the claim belongs to its owner"
    );
    Ok(())
}

fn fresh(claimed: Claimed) -> u32 {
    match claimed {
        Claimed::Fresh { fence, .. } => fence,
        other => panic!("a new claim must be free, got {other:?}"),
    }
}

/// Pseudo-random names, the same in every run.
struct Names(u64);

impl Names {
    fn draw<const N: usize>(&mut self) -> [u8; N] {
        let mut name = [0; N];
        for part in name.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            part.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..part.len()]);
        }
        name
    }
}

/// The peak memory of this process so far, if the system reports it.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}
