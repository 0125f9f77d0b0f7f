//! A call that is saved in a file, for `--save` and `rounds resume`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rounds::client::{LoadError, Pending};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Failure,
    connection::{Address, Protocol},
    private,
};

/// Version of the layout around the pending call, which has a version of its own.
const VERSION: u32 = 1;

/// A pending call, and how to reach its server. It contains no credentials.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) server: Address,
    pub(crate) era: Protocol,
    pub(crate) pending: Pending,
}

#[derive(Serialize, Deserialize)]
struct Layout {
    version: u32,
    server: Address,
    era: Protocol,
    pending: Value,
}

/// Reason why a file is not a saved call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSaved {
    #[error(
        "it has format version {0}, and this rounds reads version {VERSION}: resume it with the rounds that saved \
             it"
    )]
    Version(u64),
    #[error("it was not written by --save")]
    Malformed(#[source] serde_json::Error),
    #[error(transparent)]
    Pending(#[from] LoadError),
}

impl Saved {
    pub(crate) fn load(file: &Path) -> Result<Self, Failure> {
        let name = || file.display().to_string();
        let text = fs::read_to_string(file).map_err(|source| Failure::Read { file: name(), source })?;
        Self::parse(&text).map_err(|source| Failure::NotSaved { file: name(), source })
    }

    fn parse(text: &str) -> Result<Self, NotSaved> {
        let json: Value = serde_json::from_str(text).map_err(NotSaved::Malformed)?;
        if let Some(version) = json.get("version").and_then(Value::as_u64)
            && version != u64::from(VERSION)
        {
            return Err(NotSaved::Version(version));
        }
        let Layout { server, era, pending, .. } = serde_json::from_value(json).map_err(NotSaved::Malformed)?;
        Ok(Self { server, era, pending: Pending::from_json(&pending.to_string())? })
    }
}

/// Where a call is saved. Creating it checks that the file can be written, before any question is asked.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    file: PathBuf,
    server: Address,
    era: Protocol,
}

impl Place {
    pub(crate) fn new(file: PathBuf, server: Address, era: Protocol) -> Result<Self, Failure> {
        let place = Self { file, server, era };
        private::try_out(&place.file).map_err(|source| place.failed(source))?;
        Ok(place)
    }

    pub(crate) fn file(&self) -> String {
        self.file.display().to_string()
    }

    /// Writes the call completely or not at all, readable only by its owner.
    pub(crate) fn write(&self, pending: &Pending) -> Result<(), Failure> {
        let pending = serde_json::from_str(&pending.to_json()).unwrap_or_default();
        let layout = Layout { version: VERSION, server: self.server.clone(), era: self.era, pending };
        // Serialising cannot fail: all keys are strings.
        let text = serde_json::to_string_pretty(&layout).unwrap_or_default() + "\n";
        private::write(&self.file, &text).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Failure {
        Failure::Write { file: self.file(), source }
    }
}
