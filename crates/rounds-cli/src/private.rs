//! Files that only their owner can read, written completely or not at all.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Writes a file, replacing an existing one.
///
/// # Errors
///
/// If the path is not a regular file, or the file or its folder cannot be written. An existing file is then unchanged.
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

/// Writes a new file. False if there is one already, which stays as it is.
pub(crate) fn write_new(file: &Path, text: &str) -> io::Result<bool> {
    let (mut scratch, path) = scratch(file)?;
    let written = scratch.write_all(text.as_bytes()).and_then(|()| scratch.sync_all());
    // A link, other than a rename, does not replace a file.
    let linked = written.and_then(|()| fs::hard_link(&path, file));
    let _ = fs::remove_file(&path);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        linked => linked.map(|()| true),
    }
}

/// Checks whether [`write`] could write this file.
pub(crate) fn try_out(file: &Path) -> io::Result<()> {
    check(file)?;
    scratch(file).and_then(|(_, scratch)| fs::remove_file(scratch))
}

/// A rename replaces whatever is at the path: it would remove a device for the whole system.
fn check(file: &Path) -> io::Result<()> {
    match fs::symlink_metadata(file) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() => Ok(()),
        Ok(there) => {
            let what = kind(there.file_type());
            Err(io::Error::other(format!("it is {what}; choose a new file or a regular file")))
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

/// A new file in the same folder.
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
