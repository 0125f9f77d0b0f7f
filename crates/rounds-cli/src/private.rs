//! Files that only their owner can read, written whole or not at all.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Writes a file, in place of the one that is there.
///
/// # Errors
///
/// Where something is there that is not a regular file, and where the file or the folder cannot be written to. What was there is then as it
/// was.
pub(crate) fn write(file: &Path, text: &str) -> io::Result<()> {
    check(file)?;
    let (mut scratch, path) = scratch(file)?;
    let written = scratch.write_all(text.as_bytes()).and_then(|()| scratch.sync_all());
    let written = written.and_then(|()| fs::rename(&path, file));
    if written.is_err() {
        let _ = fs::remove_file(&path);
    }
    written
}

/// Finds out whether [`write`] would write this file.
pub(crate) fn try_out(file: &Path) -> io::Result<()> {
    check(file)?;
    scratch(file).and_then(|(_, scratch)| fs::remove_file(scratch))
}

/// A file that is moved to where something else was takes its place: a device would be gone, for everybody.
fn check(file: &Path) -> io::Result<()> {
    match fs::symlink_metadata(file) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() => Ok(()),
        Ok(there) => {
            let what = kind(there.file_type());
            Err(io::Error::other(format!("it is {what}; only a new file or a regular one is written")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn kind(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    if kind.is_symlink() { "a symbolic link" } else { "not a regular file" }
}

/// A new file next to where the file will be.
fn scratch(file: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = file.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let path = file.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    Ok((options.open(&path)?, path))
}
