//! A ledger that survives its process: every step is a line of a file, and is replayed on start.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    time::Duration,
};

use rounds::{
    FlowId,
    keys::Digest,
    ledger::{
        ClaimId, ClaimKind, ClaimRequest, Claimed, Fence, Ledger, LedgerError, MemoryLedger, OwnerLost, PrincipalShare,
        Retention, Spill,
    },
    time::{BoxFuture, Timestamp},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

pub(crate) struct FileLedger {
    memory: MemoryLedger,
    log: Mutex<File>,
    reach: fn(&str),
}

#[derive(Serialize, Deserialize)]
struct Line {
    flow: FlowId,
    what: SavedWhat,
    step: Step,
}

#[derive(Serialize, Deserialize)]
enum SavedWhat {
    Round(u32),
    Once(Digest),
}

#[derive(Serialize, Deserialize)]
enum Step {
    Spill { now: Timestamp, until: Timestamp, state: Vec<u8> },
    Claim { answers: Digest, now: Timestamp, until: Timestamp, lease: Duration, dies: bool },
    Renew { fence: Fence, lease_until: Timestamp },
    Settle { fence: Fence, reply: Option<Vec<u8>>, spill: Option<SavedSpill>, spent: Vec<Digest> },
    Release { fence: Fence, dies: bool },
}

/// The spilled state for the next round of the same flow.
#[derive(Serialize, Deserialize)]
struct SavedSpill {
    round: u32,
    now: Timestamp,
    until: Timestamp,
    state: Vec<u8>,
}

impl SavedSpill {
    fn of(spill: &Spill) -> Self {
        let Spill { id: ClaimId { what: ClaimKind::Round(round), .. }, keep: Retention { now, until, .. }, ref state } =
            *spill
        else {
            panic!("a state is spilled for a round: {spill:?}");
        };
        Self { round, now, until, state: state.clone() }
    }

    fn restored(self, flow: FlowId) -> Spill {
        let id = ClaimId { flow, what: ClaimKind::Round(self.round) };
        Spill { id, keep: keep(self.now, self.until), state: self.state }
    }
}

fn keep(now: Timestamp, until: Timestamp) -> Retention {
    Retention { now, until, share: PrincipalShare::Common }
}

impl FileLedger {
    /// Opens the file, and replays every step in it. `reach` is called at the steps where a process may be killed.
    pub(crate) async fn open(path: &Path, reach: fn(&str)) -> Self {
        let memory = MemoryLedger::new();
        let lines = std::fs::read_to_string(path).unwrap_or_default();
        // A last line without an end was being written when the process was killed, so its step does not count.
        for line in lines.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            take(&memory, serde_json::from_str(line).unwrap()).await;
        }
        let mut log = OpenOptions::new().create(true).append(true).open(path).unwrap();
        if !lines.is_empty() && !lines.ends_with('\n') {
            log.set_len(lines.rfind('\n').map_or(0, |end| end + 1) as u64).unwrap();
            log.flush().unwrap();
        }
        Self { memory, log: Mutex::new(log), reach }
    }

    fn reach(&self, when: &str, id: ClaimId) {
        let what = if matches!(id.what, ClaimKind::Once(_)) { "effect" } else { "round" };
        (self.reach)(&format!("{when} {what}"));
    }
}

async fn take(memory: &MemoryLedger, line: Line) {
    let what = match line.what {
        SavedWhat::Round(number) => ClaimKind::Round(number),
        SavedWhat::Once(digest) => ClaimKind::Once(digest),
    };
    let id = ClaimId { flow: line.flow, what };
    let orphan = |dies| if dies { OwnerLost::Dead } else { OwnerLost::Free };
    match line.step {
        Step::Spill { now, until, state } => memory.spill(Spill { id, keep: keep(now, until), state }).await.unwrap(),
        Step::Claim { answers, now, until, lease, dies } => {
            let bid = ClaimRequest { answers, keep: keep(now, until), lease, orphan: orphan(dies) };
            drop(memory.claim(id, bid).await.unwrap());
        }
        Step::Renew { fence, lease_until } => drop(memory.renew(id, fence, lease_until).await.unwrap()),
        Step::Settle { fence, reply, spill, spent } => {
            let spill = spill.map(|spill| spill.restored(id.flow));
            let spent = spent.into_iter().map(|effect| ClaimId { what: ClaimKind::Once(effect), ..id }).collect();
            memory.settle(id, fence, reply, spill, spent).await.unwrap();
        }
        Step::Release { fence, dies } => drop(memory.release(id, fence, orphan(dies), false).await.unwrap()),
    }
}

fn append(log: &mut File, id: ClaimId, step: Step) -> Result<(), LedgerError> {
    let what = match id.what {
        ClaimKind::Round(number) => SavedWhat::Round(number),
        ClaimKind::Once(digest) => SavedWhat::Once(digest),
        other => panic!("a claim of another kind: {other:?}"),
    };
    let line = serde_json::to_string(&Line { flow: id.flow, what, step }).unwrap();
    writeln!(log, "{line}").map_err(|error| LedgerError::Unavailable(error.into()))
}

impl Ledger for FileLedger {
    fn spill(&self, spill: Spill) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(async move {
            let mut log = self.log.lock().await;
            self.memory.spill(spill.clone()).await?;
            let Spill { id, keep, state } = spill;
            append(&mut log, id, Step::Spill { now: keep.now, until: keep.until, state })
        })
    }

    fn claim(&self, id: ClaimId, bid: ClaimRequest) -> BoxFuture<'_, Result<Claimed, LedgerError>> {
        Box::pin(async move {
            let mut log = self.log.lock().await;
            let ClaimRequest { answers, keep: Retention { now, until, .. }, lease, orphan } = bid;
            let claimed = self.memory.claim(id, bid).await?;
            append(&mut log, id, Step::Claim { answers, now, until, lease, dies: orphan == OwnerLost::Dead })?;
            if matches!(claimed, Claimed::Fresh { .. }) {
                self.reach("claimed", id);
            }
            Ok(claimed)
        })
    }

    fn renew(&self, id: ClaimId, fence: Fence, lease_until: Timestamp) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let mut log = self.log.lock().await;
            append(&mut log, id, Step::Renew { fence, lease_until })?;
            self.memory.renew(id, fence, lease_until).await
        })
    }

    fn settle(
        &self,
        id: ClaimId,
        fence: Fence,
        reply: Option<Vec<u8>>,
        spill: Option<Spill>,
        spent: Vec<ClaimId>,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let mut log = self.log.lock().await;
            self.reach("settling", id);
            let saved = spill.as_ref().map(SavedSpill::of);
            let effects = spent.iter().map(|effect| match effect.what {
                ClaimKind::Once(name) => name,
                other => panic!("only effects are spent: {other:?}"),
            });
            let step = Step::Settle { fence, reply: reply.clone(), spill: saved, spent: effects.collect() };
            append(&mut log, id, step)?;
            let settled = self.memory.settle(id, fence, reply, spill, spent).await;
            self.reach("settled", id);
            settled
        })
    }

    fn release(
        &self,
        id: ClaimId,
        fence: Fence,
        orphan: OwnerLost,
        unless_awaited: bool,
    ) -> BoxFuture<'_, Result<bool, LedgerError>> {
        Box::pin(async move {
            let mut log = self.log.lock().await;
            let kept = self.memory.release(id, fence, orphan, unless_awaited).await?;
            if !kept {
                append(&mut log, id, Step::Release { fence, dies: orphan == OwnerLost::Dead })?;
            }
            Ok(kept)
        })
    }
}

#[tokio::test]
async fn it_passes_the_suite_and_remembers_after_a_restart() {
    let directory = super::directory("ledger");
    let path = directory.join("suite");
    let open = || FileLedger::open(&path, |_| ());
    // The checks share no flow, so each opens the file that the earlier ones have written.
    rounds::ledger::suite::run(open).await;

    let id = ClaimId { flow: FlowId::from_bytes([7; 16]), what: ClaimKind::Round(1) };
    let answers: Digest = serde_json::from_value(serde_json::json!([7; 32].to_vec())).unwrap();
    let at = Timestamp::from_millis;
    let bid = ClaimRequest {
        answers,
        keep: keep(at(1), at(u64::MAX)),
        lease: Duration::from_millis(200),
        orphan: OwnerLost::Free,
    };
    assert!(matches!(open().await.claim(id, bid).await, Ok(Claimed::Fresh { fence: 1, .. })));
    assert!(matches!(open().await.claim(id, bid).await, Ok(Claimed::Running(_))));
    assert!(open().await.settle(id, 1, Some(b"the reply".to_vec()), None, vec![]).await.unwrap());
    assert!(matches!(open().await.claim(id, bid).await, Ok(Claimed::Done(Some(reply))) if reply == b"the reply"));
    std::fs::remove_dir_all(directory).unwrap();
}
