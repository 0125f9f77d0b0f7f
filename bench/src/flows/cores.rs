//! Assignment of cores: the caller has one core, and the servers have the others.
//!
//! If both share a core, the caller interrupts a working server, and a server that answers a sleeping caller has to
//! wake it. The system charges both to the server, and more so the longer the caller had to wait.

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// The cores of this machine, in two parts. As long as this is there, the thread that it was made in has the caller's.
pub(crate) struct Cores {
    all: CpuSet,
    caller: CpuSet,
    servers: CpuSet,
}

impl Cores {
    /// None on a machine that has one.
    pub(crate) fn part() -> nix::Result<Option<Self>> {
        let all = sched_getaffinity(THIS_THREAD)?;
        let mut parts = Self { all, caller: CpuSet::new(), servers: CpuSet::new() };
        let cores = (0..CpuSet::count()).filter(|core| all.is_set(*core) == Ok(true)).collect::<Vec<_>>();
        let Some((caller, servers @ [_, ..])) = cores.split_last() else { return Ok(None) };
        parts.caller.set(*caller)?;
        servers.iter().try_for_each(|core| parts.servers.set(*core))?;
        sched_setaffinity(THIS_THREAD, &parts.caller)?;
        Ok(Some(parts))
    }

    /// Starts a process that stays where the servers are.
    pub(crate) fn among_servers<T>(&self, start: impl FnOnce() -> T) -> nix::Result<T> {
        sched_setaffinity(THIS_THREAD, &self.servers)?;
        let started = start();
        sched_setaffinity(THIS_THREAD, &self.caller)?;
        Ok(started)
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        let _ = sched_setaffinity(THIS_THREAD, &self.all);
    }
}

const THIS_THREAD: Pid = Pid::from_raw(0);
