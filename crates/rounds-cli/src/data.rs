//! A folder with everything that a server keeps: its keys and its store.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::{Failure, keys, private, store::StoreUrl};

/// A folder with a key file and the place for a store.
pub(crate) struct Data {
    folder: PathBuf,
}

impl Data {
    /// Opens the folder. The first time, it creates the folder and a new key, readable only by their owner.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let data = Self { folder: folder.to_owned() };
        let failed = |source| Failure::Write { file: folder.display().to_string(), source };
        create_folder(folder).map_err(failed)?;
        if !data.keys().exists() {
            if data.database().exists() {
                return Err(Failure::Usage(format!(
                    "{} is there and {} is not: nothing in the store can be read without its keys; restore the key \
                     file, or remove the store",
                    data.database().display(),
                    data.keys().display()
                )));
            }
            // Another server may create one at the same time. Then its key counts.
            private::write_new(&data.keys(), &keys::generate()?)
                .map_err(|source| Failure::Write { file: data.keys().display().to_string(), source })?;
        }
        Ok(data)
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.folder.join("keys")
    }

    pub(crate) fn store(&self) -> StoreUrl {
        StoreUrl::Sqlite(self.database().display().to_string())
    }

    fn database(&self) -> PathBuf {
        self.folder.join("rounds.db")
    }
}

fn create_folder(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent)?;
    }
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        created => created,
    }
}
